/* SPDX-License-Identifier: GPL-2.0-only */
/* Where rows have their columns, by what ALTER TABLE has made of the table in place.

   Rows have places, one behind the other, and say how many places they were written with. A place
   is a column of the table, or nothing any more: a column that was dropped. Columns that are added
   get new places at the end, wherever they stand in the table. What changes how a column is packed
   (it may be NULL now, it needs a longer length) adds a place without bytes, so that rows tell by
   their number of places whether they were written before or after. */
#ifndef INKSTONE_ROW_LAYOUT_H
#define INKSTONE_ROW_LAYOUT_H

#include "common.h"
#include <vector>

/** How a column's value is packed, as far as one must know that does not have its Field. */
struct Packing
{
  bool is_nullable;
  /** How many bytes say how long the value is; 0: it has `fixed_bytes`. */
  uint8 length_bytes;
  uint16 fixed_bytes;

  /** False: a type of which this is not known. */
  static bool of(const Field *field, Packing *packing);
  bool is_sized_as(const Packing &other) const
  {
    return length_bytes == other.length_bytes && fixed_bytes == other.fixed_bytes;
  }
  bool operator==(const Packing &other) const { return is_nullable == other.is_nullable && is_sized_as(other); }
  /** A value that is not NULL, without its length. Where it ends in the bytes; nullptr: they are
      damaged. */
  const uchar *take(const uchar *at, const uchar *end, const uchar **value, size_t *length) const;
};

/** What a column holds in rows that were written before it was added. */
struct AddedColumn
{
  bool null;
  std::vector<uchar> packed;
};

struct RowPlace
{
  /** Which of the table's stored columns; NO_COLUMN: none. */
  static const uint16 NO_COLUMN= 0xffff;
  uint16 column;

  /** How rows of at most so many places have it packed, oldest first; others as the table's column
      is packed. */
  struct Before
  {
    uint16 places;
    Packing packing;
  };
  std::vector<Before> before;

  bool is_added;
  AddedColumn added;

  RowPlace() : column(NO_COLUMN), is_added(false), added() {}
  /** How rows of so many places have it; nullptr: as the table's column. */
  const Packing *packing_in(size_t places) const;
};

class RowLayout
{
public:
  /** As many places as a table may collect before the server makes it anew by copying it. */
  static const size_t PLACES_MAX= 4000;

  /** Rows have what the table has. */
  bool is_plain() const { return places.empty(); }

  /** What an ALTER in place makes of it.
      `columns`: the stored columns as they are.
      `becomes`: which stored column each of them will be, or NO_COLUMN; and its new packing.
      `in_rows`: how many places rows have now (columns of the clustered key have none).
      `added`: which stored columns come, and what old rows have of them. */
  struct Column
  {
    const Field *field;
    uint16 becomes;
    Packing packing;
  };
  struct Addition
  {
    uint16 column;
    AddedColumn added;
  };
  RowLayout altered(const std::vector<Column> &columns, size_t in_rows, const std::vector<Addition> &added) const;

  std::vector<uchar> encode() const;
  /** False: these are not places of so many columns. */
  bool decode(const std::vector<uchar> &bytes, size_t columns);
  /** As tables had it before: the order of columns, and what the last ones of them hold in rows
      that lack them. */
  bool decode_order(const std::vector<uchar> &order, const std::vector<uchar> &added, size_t columns);

  std::vector<RowPlace> places;

private:
  bool holds_each_column(size_t columns) const;
};

#endif
