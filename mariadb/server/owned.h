/* SPDX-License-Identifier: GPL-2.0-only */
/* What the C interface hands out and takes back: given back when its owner goes. */
#ifndef INKSTONE_OWNED_H
#define INKSTONE_OWNED_H

#include "server/temporary.h"
#include <memory>

struct GiveBack
{
  void operator()(ink_table *table) const { ink_table_close(table); }
  void operator()(ink_transaction *transaction) const { ink_transaction_free(transaction); }
  void operator()(ink_cursor *cursor) const { ink_cursor_close(cursor); }
  void operator()(ink_outline *outline) const { ink_outline_free(outline); }
  void operator()(ink_export *exporting) const { ink_export_end(exporting); }
  void operator()(ink_sorter *sorter) const { ink_sorter_free(sorter); }
  void operator()(ink_change_tracker *tracker) const { ink_change_tracker_free(tracker); }
  void operator()(ink_interrupt *interrupt) const { ink_interrupt_free(interrupt); }
};

typedef std::unique_ptr<ink_table, GiveBack> OwnedTable;
typedef std::unique_ptr<ink_transaction, GiveBack> OwnedTransaction;
typedef std::unique_ptr<ink_cursor, GiveBack> OwnedCursor;
typedef std::unique_ptr<ink_outline, GiveBack> OwnedOutline;
typedef std::unique_ptr<ink_export, GiveBack> OwnedExport;
typedef std::unique_ptr<ink_sorter, GiveBack> OwnedSorter;
typedef std::unique_ptr<ink_change_tracker, GiveBack> OwnedChangeTracker;
typedef std::unique_ptr<ink_interrupt, GiveBack> OwnedInterrupt;

/** Bytes that the engine copies out; one can be filled again and again. */
class OwnedBytes
{
public:
  OwnedBytes() : held() {}
  ~OwnedBytes() { ink_buffer_free(&held); }
  OwnedBytes(const OwnedBytes &)= delete;
  OwnedBytes &operator=(const OwnedBytes &)= delete;

  ink_buffer *to_fill() { return &held; }
  ink_slice slice() const { return ink_slice{held.data, held.len}; }

private:
  ink_buffer held;
};

/* These fill an owner as the functions of the same names do; on failure it is empty. */

inline int open_table(ink_slice name, OwnedTable *table, ink_error *error)
{
  ink_table *opened= nullptr;
  const int failed= ink_table_open(database_of(name), name, &opened, error);
  table->reset(failed ? nullptr : opened);
  return failed;
}

inline int new_sorter(ink_database *in, OwnedSorter *sorter, ink_error *error)
{
  ink_sorter *made= nullptr;
  const int failed= ink_sorter_new(in, &made, error);
  sorter->reset(failed ? nullptr : made);
  return failed;
}

inline int track_changes(ink_database *in, const ink_tree *tree, uint64_t bytes_max, uint64_t milliseconds,
                         OwnedChangeTracker *tracker, ink_error *error)
{
  ink_change_tracker *made= nullptr;
  const int failed= ink_track_changes(in, tree, bytes_max, milliseconds, &made, error);
  tracker->reset(failed ? nullptr : made);
  return failed;
}

inline int begin(ink_database *in, uint32_t isolation, const ink_interrupt *interrupt, OwnedTransaction *transaction,
                 ink_error *error)
{
  ink_transaction *begun= nullptr;
  const int failed= ink_begin(in, isolation, interrupt, &begun, error);
  transaction->reset(failed ? nullptr : begun);
  return failed;
}

inline int open_cursor(const ink_transaction *transaction, const ink_tree *tree,
                       const ink_range &range, const ink_scan &scan, OwnedCursor *cursor,
                       ink_error *error)
{
  ink_cursor *opened= nullptr;
  const int failed= ink_cursor_open(transaction, tree, &range, &scan, &opened, error);
  cursor->reset(failed ? nullptr : opened);
  return failed;
}

inline int get_outline(const ink_transaction *transaction, const ink_tree *tree, ink_slice key, OwnedOutline *outline,
                       ink_error *error)
{
  ink_outline *found= nullptr;
  const int failed= ink_get_outline(transaction, tree, key, &found, error);
  outline->reset(failed ? nullptr : found);
  return failed;
}

inline int begin_export(const ink_table *table, OwnedExport *exporting, ink_error *error)
{
  ink_export *begun= nullptr;
  const int failed= ink_export_begin(table, &begun, error);
  exporting->reset(failed ? nullptr : begun);
  return failed;
}

#endif
