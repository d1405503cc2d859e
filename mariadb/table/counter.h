/* SPDX-License-Identifier: GPL-2.0-only */
/* The counter of AUTO_INCREMENT of a table: what it gives next, and what of that a restart
   knows. */
#ifndef INKSTONE_COUNTER_H
#define INKSTONE_COUNTER_H

#include "table/meta.h"
#include <mutex>

class Counter
{
public:
  Counter() : meta(), next_value(1), noted(1), remembered(0), max(0), is_lacking(false) {}

  /** Reads what the table's facts say; `definition` has the column. */
  int read(THD *thd, const MetaTree &facts, const TABLE_SHARE *definition);
  /** Notes for the next open of the table in this run what was reserved. */
  int remember(THD *thd);

  /** The value that is given next. */
  uint64 next();
  /** The value that is given next, and the one that is noted. */
  void both(uint64 *next, uint64 *noted_value);
  /** Calls `change` with the counter under the latch; it returns the new one. */
  template <class Change> void change(Change change)
  {
    std::lock_guard<std::mutex> hold(latch);
    next_value= change(next_value);
  }
  /** The same, unless a statement has locked the table's counter, or waits for it: then false. */
  template <class Change> bool change_unlocked(const ink_table *table, Change change)
  {
    std::lock_guard<std::mutex> hold(latch);
    if (ink_is_locked_for_statement(table))
      return false;
    next_value= change(next_value);
    return true;
  }
  void raise(uint64 next);
  /** What was reserved and not used is given again; the counter then. */
  uint64 forget_reserved();
  /** Notes that values below `next` are in use, so that it is known after a restart. */
  int note(THD *thd, uint64 next);
  /** Sets the counter, also to less. */
  int set(THD *thd, uint64 next);
  /** Whether what was noted is a value that no row can have, and the counter is to be found from
      the rows. */
  bool lacks();
  /** Sets the counter that was found, unless another opening has found it, and may have given
      numbers already. */
  int found(THD *thd, uint64 next);

private:
  bool is_beyond_column() const { return noted - 1 > max; }
  int put(THD *thd, uint64 next);

  std::mutex latch;
  MetaTree meta;
  /** The counter; what of it a restart keeps; what is remembered for this run, 0: nothing. */
  uint64 next_value, noted, remembered;
  /** The greatest value of its column. */
  uint64 max;
  bool is_lacking;
};

#endif
