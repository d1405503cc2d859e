/* SPDX-License-Identifier: GPL-2.0-only */
/* A table that an ALTER makes anew beside writers. */
#ifndef INKSTONE_REBUILD_H
#define INKSTONE_REBUILD_H

#include "codec/row_buffers.h"
#include "table/share.h"
#include <vector>

/** Rows of a table as its new definition has them, on their way into another table of the engine,
    which takes the old one's name in the end.

    A row goes from the old definition's record into the new one's; what is added there holds its
    default. Its key is the new primary key, or the id that it has without one. */
class Rebuild
{
public:
  /** `before`: the old column behind each of the new ones; nullptr: it is added, and its default is
      in the new definition's record. */
  Rebuild(TABLE *altered, const std::vector<Field *> &before);

  /** Puts the row that is in the old record into the new one, and gives its image there. `id`: its
      hidden id. True: out of memory. */
  bool take_row(handler *reader, ink_slice id, bool computes, RowImage *row);
  /** Puts a row of the new table into the new record. False: it is damaged. */
  bool show_row(ink_slice key, ink_slice value, Buffer &scratch);

  const ink_tree *rows() const { return ink_table_tree(made.table.get(), 0); }

  TABLE *const altered;
  Replacement made;
  TableCodec codec;

private:
  struct Column
  {
    Field *from, *to;
    /** Both have the same bytes. */
    bool is_same;
  };
  std::vector<Column> columns;
  KeyRoom room;
};

#endif
