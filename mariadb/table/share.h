/* SPDX-License-Identifier: GPL-2.0-only */
/* What all open handlers of a table share: the engine's table, the counters for hidden row ids and
   AUTO_INCREMENT, where rows have their columns, and statistics. */
#ifndef INKSTONE_SHARE_H
#define INKSTONE_SHARE_H

#include "codec/row_codec.h"
#include "table/alter_plan.h"
#include "table/counter.h"
#include "table/meta.h"
#include "table/statistics.h"
#include <atomic>
#include <memory>
#include <mutex>

/** A table that is to take another one's place, under a name of its own. */
struct Replacement
{
  std::string name;
  OwnedTable table;
};

class TableShare : public Handler_share
{
public:
  TableShare()
      : meta(), images(1), times_opened(0), next_row_id(1), row_ids_noted(0), changes(0),
        changes_since_sample(0), exports(0), has_statistics(false), discarded(false), is_kept_by_session(false)
  {
  }
  ~TableShare();

  /** Opens the engine's table, once. */
  int open(THD *thd, const char *path, const TABLE_SHARE *definition);
  /** Opens it again: trees were added. */
  int reopen(THD *thd, const TABLE_SHARE *definition);

  /** What an ALTER in place does to one table; `replacement`: what takes its place, or nullptr. All
      of the tables of one ALTER are replaced, or none. */
  struct Change
  {
    TableShare *share;
    const AlterPlan *plan;
    const RowLayout *layout;
    const Replacement *replacement;
  };
  /** Commits an ALTER in place, of all these tables or of none: notes the new definition and
      carries out the plans. */
  static int alter(THD *thd, const std::vector<Change> &changes, const LEX_CUSTRING &version,
                   const TABLE_SHARE *definition);

  /** DISCARD TABLESPACE: no rows until a file is imported. */
  bool is_discarded() const { return discarded; }
  /** Which images of keys the indexes have (see meta.h). */
  uint64 image_version() const { return images; }
  const KeyRoom &key_room() const { return room; }

  ink_table *engine_table() const { return table.get(); }
  /** The database that has the table. */
  ink_database *home() const { return meta.home; }
  /** Whether it is its session's own. */
  bool is_temporary() const { return is_kept_by_session; }
  const ink_tree *clustered() const { return ink_table_tree(table.get(), 0); }
  /** The tree of an index; nullptr for the clustered one's key number. */
  const ink_tree *index_tree(uint index) const { return trees[index]; }
  /** All indexes but the clustered one, in the order in which they were made. In that order a new
      row's entries are inserted, as InnoDB does it: of several that refuse it the first one is
      named, and its row replaced. */
  const std::vector<uint> &indexes_by_age() const { return by_age; }
  /** Where rows have their columns, and how often the table was opened: with each time it may be
      elsewhere. */
  const std::shared_ptr<const RowLayout> &row_layout() const { return layout; }
  uint opened() const { return times_opened; }

  /** The next `count` hidden row ids; the first of them. */
  int take_row_ids(THD *thd, uint64 count, uint64 *first);

  Counter &auto_increment() { return counter; }

  /** Sizes and number of rows; looked up again when a sixteenth of the rows has changed. */
  int statistics(THD *thd, ink_table_estimates *found);
  /** Fills in KEY::rec_per_key of the table's indexes; counts their values if that was not done
      yet, or if a tenth of the rows has changed since (not with STATS_AUTO_RECALC=0). */
  int rows_per_value(THD *thd, TABLE *table, const std::vector<KeyCodec> &indexes);
  /** ANALYZE: both are to be found anew. */
  void forget_statistics();
  /** ANALYZE: what was found stays over restarts, unless the table has STATS_PERSISTENT=0. Not
      while its file is being exported: nothing may change in it. */
  int keep_statistics(THD *thd, const TABLE *table);
  void count_exports(int more)
  {
    std::lock_guard<std::mutex> latch(mutex);
    exports+= more;
  }
  void count_change()
  {
    changes.fetch_add(1, std::memory_order_relaxed);
    changes_since_sample.fetch_add(1, std::memory_order_relaxed);
  }

  std::string name;

private:
  int open_engine_table(THD *thd);
  int show_to_all_snapshots(THD *thd);
  int finish_alter(THD *thd);
  int drop_unfinished(THD *thd);
  int find_trees(THD *thd, const TABLE_SHARE *definition);
  int read_meta(THD *thd, const TABLE_SHARE *definition);
  int read_columns(THD *thd, const TABLE_SHARE *definition);
  int read_image_version(THD *thd);
  int take_facts_along(THD *thd, std::vector<std::vector<uchar>> *values, std::vector<ink_row> *facts);
  OwnedTable table;
  MetaTree meta;
  std::vector<const ink_tree *> trees;
  std::vector<uint> by_age;
  uint64 images;
  KeyRoom room;
  std::shared_ptr<const RowLayout> layout;
  uint times_opened;
  uint64 next_row_id, row_ids_noted;
  Counter counter;
  int read_values(THD *thd, const TABLE_SHARE *definition);
  int find_values(THD *thd, TABLE *table, uint index, const KeyCodec &codec);

  /** Row changes since the statistics were found, and since the values were counted. */
  std::atomic<uint64> changes, changes_since_sample;
  IndexValues values;
  int exports;
  bool has_statistics, discarded, is_kept_by_session;
  ink_table_estimates found_statistics;
  std::mutex mutex;
};

#endif
