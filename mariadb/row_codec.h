/* SPDX-License-Identifier: GPL-2.0-only */
/* A row as a value of the clustered tree.

   The row's columns are those that are stored (virtual ones are computed) and that the clustered key does
   not give. A value is: how many columns it was written with (varint), a bit for each nullable one of
   those (1: NULL), and those that are not NULL, packed as Field::pack does.

   A value with fewer columns than the table was written before ALTER TABLE added columns at the end. What
   those hold in such rows was noted then (see meta.h). */
#ifndef INKSTONE_ROW_H
#define INKSTONE_ROW_H

#include "key_codec.h"

/** What a column holds in rows that were written before it was added. */
struct AddedColumn
{
  bool null;
  std::vector<uchar> packed;
};

/** Appends a column that is not NULL. True: out of memory. */
bool put_packed(Buffer &out, Field *field, const uchar *record);
/** Puts a column into the record; where it ends in the bytes, nullptr if they are damaged. Long values
    (BLOB) are not copied: the record points into the bytes. */
const uchar *get_packed(Field *field, uchar *record, const uchar *at, const uchar *end);
/** Where a column lies in a record that is to be filled. */
inline uchar *column_in(uchar *record, const Field *field)
{
  return record + (field->ptr - field->table->record[0]);
}
void set_null_in_record(Field *field, uchar *record, bool null);

class RowCodec
{
public:
  RowCodec() : fixed_bytes(0), nullable_count(0), table(nullptr) {}
  void init(TABLE *table, const KeyCodec &clustered);

  /** The value of a row. True: out of memory. */
  bool put(Buffer &out, const uchar *record) const;

  /** Puts columns into the record: all, or those up to the last one in `wanted`. `added` has an
      element for each of the last columns, those that rows may lack. False: the value is damaged. */
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
