/* SPDX-License-Identifier: GPL-2.0-only */
/* A row as a value of the clustered tree.

   The row's columns are those that are stored (virtual ones are computed) and that the clustered
   key does not give, in the order of their places (codec/row_layout.h). A value is: how many places
   it was written with (varint), a bit for each nullable column of those (1: NULL), and the columns
   that are not NULL, packed as Field::pack does. */
#ifndef INKSTONE_ROW_H
#define INKSTONE_ROW_H

#include "codec/key_codec.h"
#include "codec/row_layout.h"
#include <memory>

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
  void init(TABLE *table, const KeyCodec &clustered, std::shared_ptr<const RowLayout> layout);

  /** The value of a row. True: out of memory. */
  bool put(Buffer &out, const uchar *record) const;

  /** Puts columns into the record: all, or those up to the last one in `wanted`. False: the value
      is damaged. */
  bool get(ink_slice value, const MY_BITMAP *wanted, uchar *record) const;

  /** How many places rows are written with. */
  size_t place_count() const { return layout->is_plain() ? columns.size() : places.size(); }

private:
  /** A place that rows have; no column of the clustered key. */
  struct Place
  {
    const RowPlace *of_layout;
    /** nullptr: it was dropped. */
    Field *field;
  };
  bool get_current(const uchar *at, const uchar *end, const MY_BITMAP *wanted, uchar *record) const;
  bool get_older(size_t count, const uchar *at, const uchar *end, uchar *record) const;
  bool get_added(const Place &place, size_t number, uchar *record) const;
  size_t null_bytes(size_t count) const;

  /** What rows have now, in order. */
  std::vector<Field *> columns;
  std::vector<Place> places;
  size_t fixed_bytes, nullable_count;
  TABLE *table;
  std::shared_ptr<const RowLayout> layout;
};

#endif
