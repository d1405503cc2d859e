/* SPDX-License-Identifier: GPL-2.0-only */
/* The small tree that each table has for facts about it: key is a name, value the fact.

     "a"           the next value of AUTO_INCREMENT, 8 bytes big-endian (a short name: single
                   inserts log it)
     "run"         of a run of the server, 8 bytes, the value that it would have given next, 8 bytes
                   big-endian: values that were reserved and not used are lost as long as the server
                   runs, not longer
     "row_id"      hidden row ids below are in use, 8 bytes big-endian
     "version"     the server's id of the definition that the last ALTER in place made
     "plan"        what that ALTER has still to do to the trees (see alter.h)
     "discarded"   there if the table waits for IMPORT TABLESPACE
     "renamed"     of a partition: old and new name of its table when that was renamed last, with a
                   zero byte between them (see partitions.cc)
     "images"      which images of keys the indexes have (see IMAGE_VERSION), 8 bytes big-endian;
                   none: 1
     "kept"        of a partition: not empty if it must not be dropped should it have no definition
     "statistics"  what ANALYZE found: rows, and for each index its name and columns, and how many
                   different values its first 1, 2, ... parts have (statistics.cc; numbers are 8
                   bytes big-endian)
     "columns"     where rows have their columns, if not all of them as the table has (see
                   RowLayout::encode): of each place which stored column of the table, how older rows
                   have it packed, and what rows that lack it hold
     "order", "added"
                   what "columns" was before: which stored columns come first in rows (2 bytes
                   big-endian each; empty or none: as in the table); of those that old rows lack a
                   byte (1: NULL), and if not NULL the length (4 bytes big-endian) and packed bytes.
                   A table that has "columns" has an order that no older plugin takes.

   Counters are written in a transaction of their own before the rows that use them, without waiting
   for the disk: commits are durable in order. */
#ifndef INKSTONE_META_H
#define INKSTONE_META_H

#include "server/owned.h"
#include "codec/row_codec.h"
#include <initializer_list>

/** The tree's name; no index may have it. */
#define META_TREE "#meta"

/** The images of keys that this version makes (key_codec.h). 4: a CHAR without PAD SPACE tells
    where characters that weigh nothing stand at its end, and its later levels are not padded, as in
    InnoDB (text_order.h). A table that has such an index with older images is as one of version 1.
    3: those that are longer than the engine's keys are cut (long_keys.h). Tables of 2 have no such
    keys, the others are the same; they go on as they are, and refuse a row with such a key until
    ALTER TABLE ... FORCE. 2: text as in text_order.h. In 1 keys of multi-byte character sets were
    cut short, and tis620 and the Czech collations of several passes sorted otherwise. A table with
    images of 1 of such a text is read by scans of the whole table alone, and is not written: ALTER
    TABLE ... FORCE makes its indexes anew. */
static const uint64 IMAGE_VERSION= 4;
static const uint64 LONG_KEYS_SINCE= 3;

/** The tree of facts of a table, and the database that has it. */
struct MetaTree
{
  ink_database *home;
  /** nullptr: there is none. */
  const ink_tree *tree;
  explicit operator bool() const { return tree != nullptr; }
};
inline MetaTree meta_tree_of(ink_slice name, const ink_table *table)
{
  return {database_of(name), ink_table_find_tree(table, INK_STR(META_TREE))};
}

/** Facts of one table, names and values. */
struct MetaFacts
{
  MetaTree meta;
  std::vector<ink_row> facts;
};
/** Writes facts of several tables of one database, all or none. */
int meta_put_all(THD *thd, const std::vector<MetaFacts> &tables, uint32_t durability);
/** Writes facts, all or none. */
int meta_put(THD *thd, const MetaTree &meta, std::initializer_list<ink_row> facts,
             uint32_t durability);
/** Reads a fact; empty if there is none. */
int meta_get(THD *thd, const MetaTree &meta, ink_slice name, std::vector<uchar> *fact);
int meta_put_number(THD *thd, const MetaTree &meta, ink_slice name, uint64 number);
/** 0 if there is none. */
int meta_get_number(THD *thd, const MetaTree &meta, ink_slice name, uint64 *number);

#endif
