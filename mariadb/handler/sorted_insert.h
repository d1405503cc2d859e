/* SPDX-License-Identifier: GPL-2.0-only */
/* Filling a tree that no other session can see with rows that were sorted. */
#ifndef INKSTONE_SORTED_INSERT_H
#define INKSTONE_SORTED_INSERT_H

#include "server/session.h"

/** A transaction of what fills such trees, committed now and then: neither undo nor old versions of
    the whole are kept. What is there after a failure goes with the tree. */
class FillingTransaction
{
public:
  ink_transaction *get() const { return held.get(); }
  /** Begins it, unless it has begun. */
  int begin(const Session &session, ink_database *in);
  /** So many bytes more were inserted: commits when they are many. */
  int count(THD *thd, uint64 bytes);
  int commit(THD *thd);
  /** Rolls back what is not committed. */
  void end() { held.reset(); }

private:
  OwnedTransaction held;
  uint64 uncommitted= 0;
};

/** How far a statement has come that inserts sorted rows, for SHOW PROCESSLIST. */
struct Progress
{
  THD *thd;
  uint64 done, total;
};

/** Inserts what a sorter gives back. */
class SortedInsert
{
public:
  SortedInsert(const ink_tree *tree, ink_sorter *sorter, Progress *progress)
      : tree(tree), sorter(sorter), progress(progress), inserted(), ended(false)
  {
  }
  /** Inserts the next rows. HA_ERR_FOUND_DUPP_KEY: a key was there (refused). */
  int next(ink_transaction *transaction);
  bool is_over() const { return ended; }
  /** By the last call. */
  uint64 inserted_bytes() const { return inserted.bytes; }
  /** Valid until the sorter is used again. */
  ink_row refused() const { return inserted.refused; }

private:
  const ink_tree *tree;
  ink_sorter *sorter;
  Progress *progress;
  ink_inserted inserted;
  bool ended;
};

#endif
