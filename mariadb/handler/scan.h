/* SPDX-License-Identifier: GPL-2.0-only */
/* A scan: where it stands in its tree, and the rows that it fetches.

   Keys and bounds are images here. The tree has some of them cut: seek and fetch see to it
   (codec/long_keys.h).

   A scan that was suspended, or turns round, goes on beside the row that it stood at.

   An UPDATE at read committed reads semi-consistently, as with InnoDB: of a row that another
   session has locked it gets what was committed last, and no lock. If that is not wanted
   (give_up_unlocked), nothing has waited; else the server reads on, and gets the row again, newest
   and locked. */
#ifndef INKSTONE_SCAN_H
#define INKSTONE_SCAN_H

#include "handler/access.h"
#include "codec/table_codec.h"
#include "handler/search.h"

class Scan
{
public:
  /** Rows that are fetched at a time. */
  static const size_t BATCH= 64;

  Scan(const Access &access, const TableCodec &codec);

  /** Before the first row; index_next may go beyond the range. */
  void begin();
  /** Closes the cursor; what the scan stood at is forgotten by `end` alone. */
  void close();
  void end();
  /** The transaction ends; the place in the scan is kept. */
  void suspend();

  /** To the beginning of a range of a tree; backward: to its end. */
  int seek(const ink_tree *tree, const ink_range &range, bool backward);
  /** To the range of `search`. `stops`: index_next stops at its end, too. */
  int seek_found(const ink_tree *tree, bool stops);
  /** On from the current row, if the cursor is not there or runs the other way. */
  int go_on(const ink_tree *tree);
  int turn_forward(const ink_tree *tree);
  int turn_backward(const ink_tree *tree);
  /** At the key that was taken, without a cursor. True: out of memory. */
  bool stand_at_key();
  /** Behind all rows. */
  void stand_behind_all();

  /** The next row, image and value; it becomes the current one. `beyond_bound`: the end of the
      range is not the end. */
  int next(bool beyond_bound, ink_row **row);
  /** The image of the current row's key. */
  ink_slice place() const { return current; }
  bool is_running() const { return scanning; }
  /** Whether the next rows are those of the key that was searched for. */
  bool is_within_key() const { return search.is_bounded && !backward; }
  bool stops_at_bound() const { return stop_at_bound; }

  /** The entries from the current one on that were fetched with it, once for each batch; else
      none. */
  const ink_row *take_batch(size_t *count);

  /** What of the current row's value lies outside of the row: without locks, a row of a table with
      long columns comes without it. */
  OutsideParts &outside_of_current();

  /** Gives back the lock of the row that was fetched last. Where several were fetched to find it,
      all stay locked. */
  void unlock_fetched();
  void want_semi_consistent(bool yes) { semi_consistent= yes; }
  bool shows_unlocked() const { return shown_unlocked; }
  void give_up_unlocked() { shown_unlocked= false; }

  /** What the server searches for. */
  Search search;

private:
  bool keep_current();
  bool keep_edge(const ink_range &range, bool is_backward);
  int fetch(ink_row **row);
  int complete(ink_row *row);
  int fetch_from_tree(ink_row **row);
  int gather_long_keys(const ink_row &first);
  const KeyRoom &key_room() const { return access.share->key_room(); }

  const Access &access;
  const TableCodec &codec;
  OwnedCursor cursor;
  /** The tree that the cursor is in. */
  const ink_tree *cursor_tree;
  ink_row rows[BATCH];
  size_t row_at, row_count, fetch_next;
  bool is_batch_new;
  LongKeyScan long_keys;
  /** Whether the cursor runs, and which way. */
  bool scanning, backward;
  /** Whether the cursor leaves out what lies outside of rows, and that. */
  bool outlines;
  OutsideParts outside;
  /** Whether such reads are wanted; whether the current row is one that was not locked. */
  bool semi_consistent, shown_unlocked;
  /** Whether index_next is to stop at the end of the range. */
  bool stop_at_bound;
  /** HANDLER .. READ: the end of the range of the scan, and whether the scan has come to it. */
  Buffer edge;
  uint32_t edge_bound;
  bool at_edge;
  /** Lent out by the cursor or by long_keys, or in saved_key. */
  ink_slice current;
  Buffer saved_key;
};

#endif
