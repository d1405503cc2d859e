/* SPDX-License-Identifier: GPL-2.0-only */
/* Another table of this engine, of which a foreign key needs columns and indexes: as its definition
   (.frm) says, without the server's cache of tables. The session has a metadata lock on it, or its
   statement changes it; or what is found is shown, and kept for no row. */
#ifndef INKSTONE_DEFINITION_H
#define INKSTONE_DEFINITION_H

#include "codec/table_codec.h"
#include "server/owned.h"

class Definition
{
public:
  Definition();
  ~Definition();
  Definition(const Definition &)= delete;
  Definition &operator=(const Definition &)= delete;

  /** Reads it. HA_ERR_NO_SUCH_TABLE: there is none of this engine. */
  int open(THD *thd, const std::string &name);

  const TABLE *form() const { return &table; }
  const KeyCodec &index_codec(int index) const { return codec.indexes[index]; }
  const KeyRoom &key_room() const { return room; }
  /** The tree of an index; nullptr: an ALTER is about to make it. */
  const ink_tree *tree(int index) const;
  /** All indexes but the clustered one, in the order in which they were made. */
  std::vector<uint> indexes_by_age() const;

private:
  int open_engine_table(THD *thd, const std::string &name);
  int read_form(THD *thd, const std::string &name);

  TABLE_SHARE share;
  TABLE table;
  bool has_share, has_table;
  OwnedTable engine_table;
  KeyRoom room;
  TableCodec codec;
};

/** The index that begins with these columns, each whole, in this order; -1: there is none. */
int index_of_columns(const TABLE *form, const std::vector<std::string> &columns);
/** Of several the clustered one, or the first of `by_age`, as with InnoDB: rows' entries come and
    go in that order, and a row that refers to itself finds its own as they do. */
int oldest_index_of_columns(const TABLE *form, const std::vector<uint> &by_age,
                            const std::vector<std::string> &columns);
/** Whether keys have the same bytes of both columns' values. */
bool same_type(const Field *one, const Field *other);
/** nullptr: there is none of this name. */
Field *find_column(const TABLE *form, const std::string &name);

#endif
