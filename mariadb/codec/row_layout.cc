/* SPDX-License-Identifier: GPL-2.0-only */
/* Places of columns in rows, and how they are noted (codec/row_layout.h). */
#include "codec/row_layout.h"

/* Strings are packed with their length, numbers and times as they are. What is another type's by
   its handler may be packed as it likes. */
bool Packing::of(const Field *field, Packing *packing)
{
  *packing= {field->real_maybe_null(), 0, 0};
  switch (field->real_type())
  {
  case MYSQL_TYPE_STRING:
    packing->length_bytes= field->field_length > 255 ? 2 : 1;
    return field->type_handler() == &type_handler_string;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    packing->length_bytes= static_cast<uint8>(static_cast<const Field_varstring *>(field)->length_bytes);
    return true;
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    packing->length_bytes= static_cast<uint8>(static_cast<const Field_blob *>(field)->pack_length_no_ptr());
    return true;
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
  case MYSQL_TYPE_BIT:
    packing->fixed_bytes= static_cast<uint16>(field->pack_length());
    return true;
  default:
    return false;
  }
}

const uchar *Packing::take(const uchar *at, const uchar *end, const uchar **value, size_t *length) const
{
  if (static_cast<size_t>(end - at) < length_bytes)
    return nullptr;
  *length= length_bytes ? 0 : fixed_bytes;
  for (uint i= 0; i < length_bytes; i++)
    *length|= static_cast<size_t>(at[i]) << 8 * i;
  *value= at + length_bytes;
  return static_cast<size_t>(end - *value) < *length ? nullptr : *value + *length;
}

const Packing *RowPlace::packing_in(size_t places) const
{
  for (const Before &old : before)
    if (places <= old.places)
      return &old.packing;
  return nullptr;
}

RowLayout RowLayout::altered(const std::vector<Column> &columns, size_t in_rows,
                             const std::vector<Addition> &added) const
{
  RowLayout result= *this;
  if (is_plain())
    for (size_t i= 0; i < columns.size(); i++)
    {
      result.places.emplace_back();
      result.places.back().column= static_cast<uint16>(i);
    }
  bool is_repacked= false;
  for (RowPlace &place : result.places)
  {
    if (place.column == RowPlace::NO_COLUMN)
      continue;
    const Column &column= columns[place.column];
    Packing now;
    Packing::of(column.field, &now);
    if (column.becomes == RowPlace::NO_COLUMN || !(now == column.packing))
    {
      place.before.push_back({static_cast<uint16>(in_rows), now});
      is_repacked= true;
    }
    place.column= column.becomes;
  }
  for (const Addition &addition : added)
  {
    result.places.emplace_back();
    result.places.back().column= addition.column;
    result.places.back().is_added= true;
    result.places.back().added= addition.added;
  }
  if (is_repacked && added.empty())
    result.places.emplace_back();
  return result;
}

/* Each stored column has one place. */
bool RowLayout::holds_each_column(size_t columns) const
{
  std::vector<bool> seen(columns);
  size_t count= 0;
  for (const RowPlace &place : places)
  {
    if (place.column == RowPlace::NO_COLUMN)
      continue;
    if (place.column >= columns || seen[place.column])
      return false;
    seen[place.column]= true;
    count++;
  }
  return count == columns;
}

/* Bytes that are read in order; what is not there is 0, and said in the end. */
struct Taken
{
  const std::vector<uchar> &bytes;
  size_t at;
  bool is_short;

  explicit Taken(const std::vector<uchar> &bytes) : bytes(bytes), at(0), is_short(false) {}
  bool has_more() const { return !is_short && at < bytes.size(); }
  size_t number(uint width)
  {
    size_t value= 0;
    if ((is_short= is_short || bytes.size() - at < width))
      return 0;
    for (uint i= 0; i < width; i++)
      value= value << 8 | bytes[at++];
    return value;
  }
  std::vector<uchar> run(size_t length)
  {
    if ((is_short= is_short || bytes.size() - at < length))
      return std::vector<uchar>();
    at+= length;
    return std::vector<uchar>(bytes.begin() + (at - length), bytes.begin() + at);
  }
};

static void put_number(std::vector<uchar> *bytes, size_t value, uint width)
{
  for (uint i= width; i--;)
    bytes->push_back(static_cast<uchar>(value >> 8 * i));
}

static AddedColumn take_added(Taken *from)
{
  AddedColumn added= {from->number(1) != 0, {}};
  if (!added.null)
    added.packed= from->run(from->number(4));
  return added;
}

std::vector<uchar> RowLayout::encode() const
{
  std::vector<uchar> bytes;
  for (const RowPlace &place : places)
  {
    put_number(&bytes, place.column, 2);
    put_number(&bytes, place.before.size(), 2);
    for (const RowPlace::Before &before : place.before)
    {
      put_number(&bytes, before.places, 2);
      put_number(&bytes, before.packing.is_nullable, 1);
      put_number(&bytes, before.packing.length_bytes, 1);
      put_number(&bytes, before.packing.fixed_bytes, 2);
    }
    put_number(&bytes, place.is_added, 1);
    if (!place.is_added)
      continue;
    put_number(&bytes, place.added.null, 1);
    if (place.added.null)
      continue;
    put_number(&bytes, place.added.packed.size(), 4);
    bytes.insert(bytes.end(), place.added.packed.begin(), place.added.packed.end());
  }
  return bytes;
}

bool RowLayout::decode(const std::vector<uchar> &bytes, size_t columns)
{
  places.clear();
  for (Taken from(bytes); from.has_more();)
  {
    places.emplace_back();
    RowPlace &place= places.back();
    place.column= static_cast<uint16>(from.number(2));
    for (size_t left= from.number(2); left && !from.is_short; left--)
    {
      const size_t until= from.number(2);
      Packing packing;
      packing.is_nullable= from.number(1) != 0;
      packing.length_bytes= static_cast<uint8>(from.number(1));
      packing.fixed_bytes= static_cast<uint16>(from.number(2));
      if (packing.length_bytes > 4)
        return false;
      place.before.push_back({static_cast<uint16>(until), packing});
    }
    if ((place.is_added= from.number(1) != 0))
      place.added= take_added(&from);
    if (from.is_short)
      return false;
  }
  return is_plain() || holds_each_column(columns);
}

bool RowLayout::decode_order(const std::vector<uchar> &order, const std::vector<uchar> &added, size_t columns)
{
  places.clear();
  if (order.empty() && added.empty())
    return true;
  if (!order.empty() && order.size() != 2 * columns)
    return false;
  Taken in_order(order);
  for (size_t i= 0; i < columns; i++)
  {
    places.emplace_back();
    places.back().column= static_cast<uint16>(order.empty() ? i : in_order.number(2));
  }
  std::vector<AddedColumn> last;
  for (Taken from(added); from.has_more();)
  {
    last.push_back(take_added(&from));
    if (from.is_short || last.size() > columns)
      return false;
  }
  for (size_t i= 0; i < last.size(); i++)
  {
    RowPlace &place= places[columns - last.size() + i];
    place.is_added= true;
    place.added= last[i];
  }
  return holds_each_column(columns);
}
