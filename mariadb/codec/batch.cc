/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows one behind the other in memory (codec/batch.h). */
#include "codec/batch.h"
#include <algorithm>

bool Batch::add(ink_slice key, ink_slice value)
{
  Place place= {bytes.length(), bytes.length() + key.len, bytes.length() + key.len + value.len};
  return bytes.append(key.data, key.len) || bytes.append(value.data, value.len) ||
         places.append(reinterpret_cast<uchar *>(&place), sizeof place);
}

ink_row *Batch::rows()
{
  found.clear();
  const Place *place= reinterpret_cast<const Place *>(places.data());
  const Place *end= reinterpret_cast<const Place *>(places.end());
  if (found.reserve((end - place) * sizeof(ink_row)))
    return nullptr;
  ink_row *row= reinterpret_cast<ink_row *>(found.data());
  for (; place < end; place++, row++)
  {
    row->key= ink_slice{bytes.data() + place->key, place->value - place->key};
    row->value= ink_slice{bytes.data() + place->value, place->end - place->value};
  }
  return reinterpret_cast<ink_row *>(found.data());
}

ink_row *Batch::sorted_rows()
{
  ink_row *first= rows();
  if (first)
    std::sort(first, first + count(), [](const ink_row &one, const ink_row &other) {
      return compare_bytes(one.key, other.key) < 0;
    });
  return first;
}

size_t Batch::number_of(const ink_row &row) const
{
  const Place *first= reinterpret_cast<const Place *>(places.data());
  const size_t start= row.key.data - bytes.data();
  const Place *found= std::lower_bound(first, first + count(), start, [](const Place &place, size_t key) {
    return place.key < key;
  });
  return found - first;
}

void Batch::clear()
{
  bytes.clear();
  places.clear();
}
