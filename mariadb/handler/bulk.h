/* SPDX-License-Identifier: GPL-2.0-only */
/* Inserts of one statement, held back and given to the engine many at a time, which it logs in
   runs.

   The difference cannot be seen: rows are held back only where a duplicate fails the whole
   statement, and where the statement does not read the table. The first row that cannot be inserted
   is the one that is reported, for the first index that refuses it, as if rows had been inserted
   one by one: a batch that is refused is undone and repeated so, and what the server said of later
   rows is taken back.

   Where more rows come than are held back at a time, the entries of indexes that refuse none are
   sorted and inserted at the end of the statement: in key order they cost a fraction. A search of
   the table by the statement comes behind that.

   Of a table that the server fills for ALTER or CREATE .. SELECT the entries of indexes are sorted
   and inserted at the end, and all of it is committed on the way: no other session sees the table,
   and it goes if the statement fails. Which row is refused first is found out then: the sorters
   know how many came before each. */
#ifndef INKSTONE_BULK_H
#define INKSTONE_BULK_H

#include "codec/batch.h"
#include "handler/ha_inkstone.h"
#include <vector>

class BulkInsert
{
public:
  explicit BulkInsert(ha_inkstone &handler);
  ~BulkInsert() { table.access.copying.end(); }
  /** False: out of memory. */
  bool is_ready() const { return entries != nullptr; }
  bool takes_rows() const { return !table.ignores_duplicates; }
  /** Holds a row back; if it has a hidden id, the handler's row_id is that. */
  int add(const uchar *record);
  /** Inserts what is held back, but for entries that are sorted. */
  int flush();
  /** Inserts those, too: what is searched for next is there. */
  int settle();
  /** The last call: inserts all that is not inserted yet. */
  int finish();

private:
  bool copies() const { return is_copy; }
  /** Whether entries of an index wait in a sorter. */
  bool sorts(uint index) const { return sorters && sorters[index]; }
  bool refuses_rows(uint index) const;
  bool refuses_entries() const;
  bool commits_copy() const;
  int begin_sorting();
  int insert_held();
  int copy_held();
  int sort_entries(size_t rows);
  int finish_copy();
  int complete_copy();
  int insert_entries();
  int insert_index(uint index, Progress *progress);
  int refused_by_index(uint64 before);
  void note_conditions();
  uint conditions_at(uint64 row) const;
  void clear();
  int insert_batches();
  int insert_clustered();
  int insert_rows(size_t *done, ink_error *error);
  int insert_batch(const ink_tree *tree, Batch &batch);
  int insert_one_by_one();
  int count_auto_increments(int failure);
  int refused(size_t row, uint index, const ink_error &error);
  void keep_conditions(size_t kept);

  ha_inkstone &table;
  Batch clustered;
  BatchParts clustered_parts;
  /** By index; that of the clustered key is not used. */
  const std::unique_ptr<Batch[]> entries;
  size_t count, held_bytes;
  /** Of each row; empty if the table has no such column. */
  std::vector<ulonglong> auto_increments;
  /** How many conditions (warnings, notes) the statement had when the row came, of each row. */
  std::vector<uint> conditions;
  /** Rows that were inserted, or refused, of those held back: the last one may have failed. */
  size_t tried;
  /** The row that the server has taken for the first one with a value of AUTO_INCREMENT; SIZE_MAX:
      none of these. */
  size_t first_generated;
  /** Whether their values raise the counter. */
  bool counts_rows;
  /** The entries of each index that has its own here (of a copy all; never the clustered key). */
  std::unique_ptr<OwnedSorter[]> sorters;
  bool is_copy;
  /** Rows of a copy that are inserted. */
  uint64 copied;
  /** Of a copy: from which row on how many conditions there were. */
  std::vector<std::pair<uint64, uint>> changes_of_conditions;
  /** Conditions that stay after a failure; UINT_MAX: those of the last row that was tried. */
  uint kept_conditions;
};

#endif
