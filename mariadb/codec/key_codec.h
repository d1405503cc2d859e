/* SPDX-License-Identifier: GPL-2.0-only */
/* Memcomparable keys: the image of an index's columns, and back where a covering read wants them.

   The image of a key is that of its parts, one after the other. A nullable part begins with a byte:
   0 NULL, 1 not. Then, by type:

   - Integer, year, enum, set: big-endian, the sign bit of signed ones flipped.
   - Fixed (decimals, temporals with fractions, BIT, BINARY, UUID, INET): their bytes in the record,
     which compare as the values do.
   - Sortable (FLOAT, DOUBLE): what Field::sort_string makes of it.
   - Bytes (VARBINARY, BLOB): 00 ends it; 00 and 01 within are written as 01 01 and 01 02.
   - Text: see text_order.h.

   All bytes of a descending part are inverted. Every image tells where it ends, so no image is the
   beginning of another one of the same part.

   A secondary index has an entry for each row: if it is unique and no part is NULL the key is the
   image and the value begins with the image of the clustered key; else those parts of the clustered
   key that are no parts of the index stand behind them in the key. The value ends with the packed
   columns that cannot be had from the images (text, floating point), for covering reads.

   What is said here of an entry is its image and its value. An image that is too long for the
   engine is cut in the tree (long_keys.h): put_entry makes rows of trees, and their readers restore
   the image first. */
#ifndef INKSTONE_KEY_H
#define INKSTONE_KEY_H

#include "codec/long_keys.h"
#include "codec/text_order.h"
#include <algorithm>
#include <vector>

/** A value of a column, in the record or in a key buffer of the server's. */
struct ColumnValue
{
  bool null;
  const uchar *data;
  size_t length;
};

/** One part of a key: how its column becomes bytes that sort. */
class KeyPartCodec
{
public:
  explicit KeyPartCodec(const KEY_PART_INFO &part);

  /** Appends the image of the column in `record`. True: out of memory. */
  bool put_record(Buffer &out, const uchar *record) const;
  /** Appends the image of another part's column, which has the same type, as if it were this
      one's. True: out of memory. */
  bool put_value_of(Buffer &out, const KeyPartCodec &other, const uchar *record) const
  {
    return put(out, other.value_in(record));
  }
  /** Appends the image of the part at `key` in the server's key format. True: out of memory. */
  bool put_key(Buffer &out, const uchar *key) const;
  /** Bytes that the part takes in the server's key format. */
  uint key_bytes() const { return part.store_length; }

  /** Where the image at `at` ends, nullptr if it does not end before `end`. `*null`: it is NULL. */
  const uchar *skip(const uchar *at, const uchar *end, bool *null) const;
  /** Puts a column back into the record from its image; only if is_reversible. Not for NULL. */
  void restore(const uchar *image, size_t length, uchar *record) const;

  bool is_null(const uchar *record) const
  {
    return nullable && field->is_null_in_record(record);
  }
  /** Whether the column itself can be had from its image. */
  bool is_reversible() const { return reversible; }
  /** Whether the whole column is in the key, not only its beginning. */
  bool is_whole() const { return whole; }
  bool is_descending() const { return descending; }
  /** The version (see meta.h) since which its images are as they are now. */
  uint64 images_since() const { return kind == TEXT ? order->images_since() : 1; }
  Field *column() const { return field; }
  bool is_nullable() const { return nullable; }

private:
  enum Kind { INTEGER, FIXED, SORTABLE, BYTES, TEXT };

  ColumnValue value_in(const uchar *record) const;
  bool put(Buffer &out, const ColumnValue &value) const;
  size_t prefix_bytes(const uchar *data, size_t length) const;
  void choose_text_kind();

  const KEY_PART_INFO part;
  Field *field;
  CHARSET_INFO *charset;
  Kind kind;
  bool nullable, descending, is_signed, reversible, whole;
  /** Of text. */
  const TextOrder *order;
  size_t fixed_bytes;
};

/** An index, or the clustered key. */
class KeyCodec
{
public:
  KeyCodec() : clustered_codec(nullptr), key_room(nullptr), unique(false) {}

  /** Prepares for an index of a table; `clustered` is nullptr for the clustered key itself, and has
      no parts where rows have hidden ids. `room` is the table's. */
  void init(const KEY &key, const KeyCodec *clustered, const KeyRoom *room);

  /** Appends the image of the parts; `*has_null`: one of them is NULL. True: out of memory. */
  bool put_record(Buffer &out, const uchar *record, bool *has_null) const;
  /** Appends the image of the parts in `map` of a key in the server's format. */
  bool put_key(Buffer &out, const uchar *key, key_part_map map) const;
  /** How the images of two of the server's keys compare; parts of the same bytes need none.
      The buffers are for images. True: out of memory. */
  bool compare_keys(const uchar *one, const uchar *other, Buffer &image, Buffer &other_image,
                    int *order) const;

  /** Whether a key with all parts, in the server's format, has a NULL. */
  bool key_has_null(const uchar *key) const;

  /** An entry of a secondary index, as the tree has it: key and value. */
  bool put_entry(Buffer &key, Buffer &value, const uchar *record, const Buffer &row_key,
                 bool *is_unique) const;
  /** The clustered key's image in an entry, and where in the value the packed columns begin. The
      image lies in the entry or in `scratch`. False: the entry is damaged. */
  bool row_key(ink_slice key, ink_slice value, Buffer &scratch, ink_slice *found,
               size_t *extras_at) const;
  /** Puts the columns of an entry into the record for a covering read, also those of the clustered
      key. False: the entry is damaged. */
  bool restore_entry(ink_slice key, ink_slice value, Buffer &scratch, uchar *record) const;
  /** Puts the columns that can be had from the image of the parts into the record. */
  bool restore(ink_slice image, uchar *record) const;

  /** Where in the tree's key of an entry each part ends, those of the clustered key that follow
      with them; how many there are. The part in which a key is cut ends there. */
  size_t part_ends(ink_slice key, size_t (&ends)[2 * MAX_REF_PARTS]) const;

  const std::vector<KeyPartCodec> &parts() const { return key_parts; }
  /** Whether it has but the beginning of a column. */
  bool has_prefix() const
  {
    return std::any_of(key_parts.begin(), key_parts.end(), [](const KeyPartCodec &part) { return !part.is_whole(); });
  }
  bool is_unique() const { return unique; }

private:
  bool hidden_row_id() const { return clustered_codec->key_parts.empty(); }
  const uchar *skip_parts(const uchar *at, const uchar *end, const uchar **starts,
                          bool *has_null) const;
  bool gather_row_key(const uchar **starts, const uchar *at, const uchar *end, Buffer &scratch,
                      ink_slice *found) const;
  void find_tail();
  void find_extras();

  std::vector<KeyPartCodec> key_parts;
  /** The parts of the clustered key that are no parts of this index: what stands behind them. */
  std::vector<const KeyPartCodec *> tail;
  /** For each part of the clustered key: which part of this index it is, or -1. */
  std::vector<int> sources;
  /** Columns that a covering read needs and the images do not give. */
  std::vector<Field *> extras;
  const KeyCodec *clustered_codec;
  const KeyRoom *key_room;
  bool unique;
};

/** Bytes of the clustered key of a table without a primary key. */
static const size_t ROW_ID_BYTES= 8;

#endif
