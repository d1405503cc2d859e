/* SPDX-License-Identifier: GPL-2.0-only */
/* Inserts of one statement, held back and given to the engine many at a time, which it logs in runs.

   Nobody sees the difference: rows are held back only where a duplicate fails the whole statement, and where
   the statement does not read the table. The first row that cannot be inserted is the one that is
   reported, for the first index that refuses it, as if rows had been inserted one by one: a batch that
   is refused is undone and repeated so. */
#ifndef INKSTONE_BULK_H
#define INKSTONE_BULK_H

#include "batch.h"
#include "ha_inkstone.h"

class BulkInsert
{
public:
  explicit BulkInsert(ha_inkstone &handler);
  ~BulkInsert() { delete[] entries; }

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
  int refused(size_t row, uint index, const ink_error &error);

  ha_inkstone &table;
  Batch clustered;
  /** By index; that of the clustered key is not used. */
  Batch *entries;
  size_t count;
  uint64 auto_increment_next;
};

#endif
