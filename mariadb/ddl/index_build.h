/* SPDX-License-Identifier: GPL-2.0-only */
/* An index that an ALTER builds beside writers. */
#ifndef INKSTONE_INDEX_BUILD_H
#define INKSTONE_INDEX_BUILD_H

#include "codec/key_codec.h"
#include "server/owned.h"
#include <memory>
#include <string>
#include <vector>

/** A new index, over the columns of the table as it still is. */
struct BuiltIndex
{
  /** With parts of its own; of a message about a duplicate. */
  KEY key;
  std::vector<KEY_PART_INFO> parts;
  KeyCodec codec;
  OwnedTable table;
  const ink_tree *tree;
  /** Whether it has virtual columns. */
  bool is_computed;
};

/** The new indexes of a table, how far they are, and which rows have changed since.

    All rows that a first snapshot sees get their entries, in order. Meanwhile writers go on, and
    the engine notes the keys of rows that they write. Then, again and again, entries of those that
    a newer snapshot sees otherwise are exchanged: the last time when the server keeps writers away.
    Between two snapshots it is of no concern in which order rows have changed, so a unique index
    refuses what is there twice in the end, and nothing that was so for a moment. */
struct IndexBuild
{
  std::vector<std::unique_ptr<BuiltIndex>> indexes;
  OwnedChangeTracker tracker;
  /** Sees the rows as the indexes have them. */
  OwnedTransaction seen;
};

#endif
