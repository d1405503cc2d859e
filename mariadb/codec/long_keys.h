/* SPDX-License-Identifier: GPL-2.0-only */
/* Images of keys that are longer than the engine's keys (docs/decisions/0018).

   An image of more bytes than KeyRoom::whole is cut: the tree's key is its first `whole` bytes (its
   head) and the SHA-256 of all of it; the tree's value begins with the rest of it (its length in 4
   bytes, big-endian, and the bytes) and goes on with what it would be. What must hold:

   - Only cut keys have more than `whole` bytes: a key that is whole is never taken for one that is
     cut.
   - Two tree keys are equal exactly where the images are: points and duplicates are found as usual.
   - Tree keys sort as their images but for cut ones of the same head, which stand side by side (no
     image is the beginning of another): a scan that meets one gathers all of its head and sorts
     them by the rest.
   - A bound of more bytes than `whole` is cut, too: the range in the tree is that of all images of
     its head, and the scan leaves out what is not in the range that was asked for. A locking read
     locks all of it. */
#ifndef INKSTONE_LONG_KEYS_H
#define INKSTONE_LONG_KEYS_H

#include "codec/batch.h"

/** Makes an image the least one that is greater than all that begin with it. False: there is
    none. */
bool next_prefix(Buffer &image);

class KeyRoom
{
public:
  /** No image is cut: tables whose images are older than version 3 (meta.h). The engine refuses
      long ones. */
  KeyRoom() : whole(SIZE_MAX) {}
  explicit KeyRoom(size_t key_bytes_max) : whole(key_bytes_max - DIGEST_BYTES) {}

  bool cuts() const { return whole != SIZE_MAX; }
  /** Whether a tree's key, or an image's, is a cut one. */
  bool is_cut(ink_slice key) const { return key.len > whole; }
  /** The beginning of an image that tree keys have as it is. */
  ink_slice head(ink_slice image) const { return {image.data, MY_MIN(image.len, whole)}; }

  /** The tree's key of an image: the image itself, or made in `scratch`. True: out of memory. */
  bool tree_key(ink_slice image, Buffer &scratch, ink_slice *key) const;
  /** Puts the rest of an image before a value, if it is cut. True: out of memory. */
  bool put_rest(Buffer &value, ink_slice image) const;
  /** Makes an image and its value a row of a tree. True: out of memory. */
  bool cut(Buffer &image, Buffer &value) const;

  /** Takes the rest of an image from the beginning of a cut row's value. False: the value is
      damaged. */
  static bool take_rest(ink_slice *value, ink_slice *rest);
  /** Makes a row of a tree an image (which may lie in `scratch`) and its value. False: the row is
      damaged, or there is no memory. */
  bool restore(ink_row *row, Buffer &scratch) const;

  /** The range in a tree that has all images of a range. Its upper end may lie in `high`. True: out
      of memory. */
  bool tree_range(const ink_range &images, Buffer &high, ink_range *in_tree) const;

  static const size_t DIGEST_BYTES= 32;

private:
  size_t whole;
};

/** What a scan does about cut keys: the range that was asked for, and the rows of the head that it
    stands in. */
class LongKeyScan
{
public:
  LongKeyScan() : room(nullptr), at(0), is_current(false) {}

  /** Begins a scan of a range of images; gives the range to read in the tree. True: out of
      memory. */
  bool begin(const KeyRoom &key_room, const ink_range &images, bool backward, ink_range *in_tree);
  void clear();

  /** Whether an image is in the range, as far as the tree's range does not see to that. */
  bool has(ink_slice image) const;
  /** Whether a row of the tree is cut and has the head of those at hand. */
  bool belongs(const ink_row &row) const;
  /** Begins with the head of a cut row. True: out of memory. */
  bool start(const ink_row &row);
  /** Adds a row of that head. 0, or a handler's error. */
  int add(const ink_row &row);
  /** All are there: puts them in order. True: out of memory. */
  bool sort();
  /** The next of them, image and value; nullptr: none is left. It lives until the next call, clear
      or start. */
  ink_row *next();
  /** Whether next gave the scan's current row. */
  bool gave_current() const { return is_current; }
  void pass_current() { is_current= false; }

private:
  ink_slice image_of(ink_slice rest);

  const KeyRoom *room;
  bool backward;
  /** Bounds that are cut in the tree; the others are unbounded here. */
  uint32_t low_bound, high_bound;
  Buffer low, high, tree_high;
  /** The head, and behind it the rest of one row. */
  Buffer image;
  size_t head_bytes;
  /** Rest and value of each row. */
  Batch batch;
  ink_row *rows, row;
  size_t count, at;
  bool is_current;
};

#endif
