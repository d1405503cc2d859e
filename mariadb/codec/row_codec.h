/* SPDX-License-Identifier: GPL-2.0-only */
/* A row as a value of the clustered tree.

   The row's columns are those that are stored (virtual ones are computed) and that the clustered
   key does not give, in the order of their places (codec/row_layout.h). A value is: how many places
   it was written with (varint), a bit for each nullable column of those (1: NULL), and the columns
   that are not NULL, packed as Field::pack does.

   The bytes of a long column, behind its length, are a part that may lie outside of the row: where
   the row is read without it, it is fetched if the column is wanted. */
#ifndef INKSTONE_ROW_H
#define INKSTONE_ROW_H

#include "codec/key_codec.h"
#include "codec/outside.h"
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
  RowCodec() : has_long(false), fixed_bytes(0), nullable_count(0), table(nullptr) {}
  void init(TABLE *table, const KeyCodec &clustered, std::shared_ptr<const RowLayout> layout);

  /** The value of a row, and its parts (ink_part, one behind the other). True: out of memory. */
  bool put(Buffer &out, Buffer &parts, const uchar *record) const;
  /** Whether a row may have parts. */
  bool has_long_columns() const { return has_long; }

  /** Puts columns into the record: all, or those up to the last one in `wanted`. False: the value
      is damaged. */
  bool get(ink_slice value, const MY_BITMAP *wanted, uchar *record) const;
  /** The same of a value as it lies in the row. Of columns that lie outside and are not in `wanted`
      nothing is read: a BLOB is empty in the record, a VARCHAR is what it was. False: damaged, or
      outside.has_failed. */
  bool get(ink_slice inline_bytes, OutsideParts &outside, const MY_BITMAP *wanted, uchar *record) const;

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
  class Reader;
  bool take_count(const uchar **at, const uchar *end, size_t *count) const;
  bool get_current(Reader &from, const MY_BITMAP *wanted, uchar *record) const;
  bool get_older(size_t count, const uchar *at, const uchar *end, uchar *record) const;
  bool get_added(const Place &place, size_t number, uchar *record) const;
  size_t null_bytes(size_t count) const;

  /** What rows have now, in order. */
  std::vector<Field *> columns;
  /** Of each of them: bytes of the length in front of what may be a part; 0: it is never long. */
  std::vector<uint8> lengths_of_long;
  std::vector<Place> places;
  bool has_long;
  size_t fixed_bytes, nullable_count;
  TABLE *table;
  std::shared_ptr<const RowLayout> layout;
};

#endif
