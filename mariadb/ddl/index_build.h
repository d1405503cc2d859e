/* SPDX-License-Identifier: GPL-2.0-only */
/* An index that an ALTER builds beside writers. */
#ifndef INKSTONE_INDEX_BUILD_H
#define INKSTONE_INDEX_BUILD_H

#include "ddl/rebuild.h"
#include <memory>
#include <string>
#include <vector>

/** A new index, over the columns of the table as it still is; or a tree of a table that is made
    anew, over its new columns. */
struct BuiltIndex
{
  /** Of a message about a duplicate. */
  KEY key;
  const KeyCodec *codec;
  const ink_tree *tree;
  /** Of an index over the columns as they are, which has parts of its own. */
  std::vector<KEY_PART_INFO> parts;
  KeyCodec own_codec;
  OwnedTable table;
  /** The table that is made anew, and whether this tree has its rows. */
  Rebuild *rebuild= nullptr;
  bool is_rows= false;
  /** Whether it has virtual columns. */
  bool is_computed;
};

/** Leaves of a row what an entry has of it: what InnoDB shows of a duplicate in place. */
void cut_values(const KEY &key);

/** The new indexes of a table, how far they are, and which rows have changed since.

    All rows that a first snapshot sees get their entries, in order. Meanwhile writers go on, and
    the engine notes the keys of rows that they write. Then, again and again, entries of those that
    a newer snapshot sees otherwise are exchanged: the last time when the server keeps writers away.
    Between two snapshots it is of no concern in which order rows have changed, so a unique index
    refuses what is there twice in the end, and nothing that was so for a moment. */
struct IndexBuild
{
  /** Of an ALTER that makes the table anew, with all its trees. */
  std::unique_ptr<Rebuild> rebuild;
  std::vector<std::unique_ptr<BuiltIndex>> indexes;
  OwnedChangeTracker tracker;
  /** Sees the rows as the indexes have them. */
  OwnedTransaction seen;
};

#endif
