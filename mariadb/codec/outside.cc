/* SPDX-License-Identifier: GPL-2.0-only */
/* Parts of rows, fetched and held back (codec/outside.h). */
#include "codec/outside.h"
#include <new>

void OutsideParts::use(ink_outline *of_outline, ink_cursor *of_cursor, size_t of_row, ink_parts parts)
{
  outline= of_outline;
  cursor= of_cursor;
  row= of_row;
  found= parts;
  no_memory= false;
  error.code= INK_OK;
}

bool OutsideParts::append(size_t n, Buffer &to)
{
  const size_t length= found.parts[n].len;
  if ((no_memory= to.reserve(length)))
    return false;
  if (outline ? ink_outline_read(outline, n, 0, to.end(), length, &error)
              : ink_cursor_read(cursor, row, n, 0, to.end(), length, &error))
    return false;
  to.grow_to(to.end() + length);
  return true;
}

const uchar *OutsideParts::fetch(size_t n)
{
  if (room < found.count)
  {
    fetched.reset(new (std::nothrow) Buffer[found.count]);
    room= fetched ? found.count : 0;
    if ((no_memory= !fetched))
      return nullptr;
  }
  fetched[n].clear();
  return append(n, fetched[n]) ? fetched[n].data() : nullptr;
}

bool OutsideParts::put_together(ink_slice inline_bytes, ink_slice *value)
{
  whole.clear();
  size_t passed= 0, length= inline_bytes.len;
  for (size_t n= 0; n < found.count; n++)
    length+= found.parts[n].len;
  if ((no_memory= whole.reserve(length)))
    return false;
  for (size_t n= 0; n < found.count; n++)
  {
    const size_t before= found.parts[n].at - whole.length();
    whole.append(inline_bytes.data + passed, before);
    passed+= before;
    if (!append(n, whole))
      return false;
  }
  whole.append(inline_bytes.data + passed, inline_bytes.len - passed);
  *value= slice(whole);
  return true;
}

bool BatchParts::add(ink_parts of_row)
{
  return counts.append(reinterpret_cast<const uchar *>(&of_row.count), sizeof of_row.count) ||
         parts.append(reinterpret_cast<const uchar *>(of_row.parts), of_row.count * sizeof(ink_part));
}

const ink_parts *BatchParts::rows()
{
  const size_t count= counts.length() / sizeof(size_t);
  const size_t *count_of= reinterpret_cast<const size_t *>(counts.data());
  const ink_part *next= reinterpret_cast<const ink_part *>(parts.data());
  found.clear();
  if (found.reserve(count * sizeof(ink_parts)))
    return nullptr;
  ink_parts *row= reinterpret_cast<ink_parts *>(found.data());
  for (size_t i= 0; i < count; i++)
  {
    row[i]= ink_parts{next, count_of[i]};
    next+= count_of[i];
  }
  return row;
}

void BatchParts::clear()
{
  counts.clear();
  parts.clear();
}
