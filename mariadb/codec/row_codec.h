/* SPDX-License-Identifier: GPL-2.0-only */
/* A row as a value of the clustered tree.

   The row's columns are those that are stored (virtual ones are computed) and that the clustered
   key does not give. A value is: how many columns it was written with (varint), a bit for each
   nullable one of those (1: NULL), and those that are not NULL, packed as Field::pack does.

   Columns have their own order in rows: ALTER TABLE may add a column anywhere and move others, and
   rows get new ones at the end (see meta.h). A value with fewer columns than the table was written
   before some were added; what those hold in such rows was noted then. */
#ifndef INKSTONE_ROW_H
#define INKSTONE_ROW_H

#include "codec/key_codec.h"

/** What a column holds in rows that were written before it was added. */
struct AddedColumn
{
  bool null;
  std::vector<uchar> packed;
};

/** Appends a column that is not NULL. True: out of memory. */
bool put_packed(Buffer &out, Field *field, const uchar *record);
/** Puts a column into the record; where it ends in the bytes, nullptr if they are damaged. Long
    values (BLOB) are not copied: the record points into the bytes. */
const uchar *get_packed(Field *field, uchar *record, const uchar *at, const uchar *end);
/** Where a column lies in a record that is to be filled. */
inline uchar *column_in(uchar *record, const Field *field)
{
  return record + (field->ptr - field->table->record[0]);
}
/** The columns that rows hold, as the table has them. */
std::vector<Field *> stored_columns(const TABLE *table);
void set_null_in_record(Field *field, uchar *record, bool null);

class RowCodec
{
public:
  RowCodec() : fixed_bytes(0), nullable_count(0), table(nullptr) {}
  /** `order`: which of the table's stored columns come first in rows; empty: as in the table. */
  void init(TABLE *table, const KeyCodec &clustered, const std::vector<uint16> &order);

  /** The value of a row. True: out of memory. */
  bool put(Buffer &out, const uchar *record) const;

  /** Puts columns into the record: all, or those up to the last one in `wanted`. `added` has an
      element for each of the last columns, those that rows may lack. False: the value is
      damaged. */
  bool get(ink_slice value, const std::vector<AddedColumn> &added, const MY_BITMAP *wanted,
           uchar *record) const;

private:
  bool get_column(Field *field, const AddedColumn &added, uchar *record) const;
  size_t null_bytes(size_t count) const;

  std::vector<Field *> columns;
  size_t fixed_bytes, nullable_count;
  TABLE *table;
};

#endif
