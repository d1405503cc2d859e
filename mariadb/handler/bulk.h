/* SPDX-License-Identifier: GPL-2.0-only */
/* Inserts of one statement, held back and given to the engine many at a time, which it logs in
   runs.

   The difference cannot be seen: rows are held back only where a duplicate fails the whole
   statement, and where the statement does not read the table. The first row that cannot be inserted
   is the one that is reported, for the first index that refuses it, as if rows had been inserted
   one by one: a batch that is refused is undone and repeated so, and what the server said of later
   rows is taken back. */
#ifndef INKSTONE_BULK_H
#define INKSTONE_BULK_H

#include "codec/batch.h"
#include "handler/ha_inkstone.h"
#include <vector>

class BulkInsert
{
public:
  explicit BulkInsert(ha_inkstone &handler);
  /** False: out of memory. */
  bool is_ready() const { return entries != nullptr; }
  bool takes_rows() const { return !table.ignores_duplicates; }
  /** Holds a row back; if it has a hidden id, the handler's row_id is that. */
  int add(const uchar *record);
  /** Inserts what is held back. */
  int flush();

private:
  void clear();
  int insert_batches();
  int insert_batch(const ink_tree *tree, Batch &batch, bool sort);
  int insert_one_by_one();
  int count_auto_increments(bool duplicate);
  int refused(size_t row, uint index, const ink_error &error);
  void keep_conditions(size_t kept);

  ha_inkstone &table;
  Batch clustered;
  /** By index; that of the clustered key is not used. */
  const std::unique_ptr<Batch[]> entries;
  size_t count;
  /** Of each row; empty if the table has no such column. */
  std::vector<ulonglong> auto_increments;
  /** How many conditions (warnings, notes) the statement had when the row came, of each row. */
  std::vector<uint> conditions;
  /** Rows that were inserted, or refused as duplicates, of those held back. */
  size_t tried;
  /** The row that the server has taken for the first one with a value of AUTO_INCREMENT; SIZE_MAX:
      none of these. */
  size_t first_generated;
  /** Whether their values raise the counter. */
  bool counts_rows;
};

#endif
