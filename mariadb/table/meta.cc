/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading and writing facts, and what some of them look like (table/meta.h). */
#include "table/meta.h"

int meta_put_all(THD *thd, const std::vector<MetaFacts> &tables, uint32_t durability)
{
  ink_error error;
  std::vector<ink_tree_row> rows;
  for (const MetaFacts &table : tables)
    for (const ink_row &fact : table.facts)
      rows.push_back({table.meta, fact.key, fact.value});
  return ink_write_rows(database, rows.data(), rows.size(), durability, &error) ? handler_error(thd, error) : 0;
}

int meta_put(THD *thd, const ink_tree *meta, std::initializer_list<ink_row> facts,
             uint32_t durability)
{
  return meta_put_all(thd, {{meta, facts}}, durability);
}

int meta_get(THD *thd, const ink_tree *meta, ink_slice name, std::vector<uchar> *fact)
{
  ink_error error;
  OwnedBytes value;
  bool found;
  fact->clear();
  if (ink_read_row(database, meta, name, value.to_fill(), &found, &error))
    return handler_error(thd, error);
  fact->assign(value.slice().data, value.slice().data + value.slice().len);
  return 0;
}

int meta_put_number(THD *thd, const ink_tree *meta, ink_slice name, uint64 number)
{
  uchar bytes[8];
  mi_int8store(bytes, number);
  return meta_put(thd, meta, {{name, {bytes, sizeof bytes}}}, INK_LAZY);
}

int meta_get_number(THD *thd, const ink_tree *meta, ink_slice name, uint64 *number)
{
  std::vector<uchar> fact;
  *number= 0;
  if (int failed= meta_get(thd, meta, name, &fact))
    return failed;
  if (fact.size() == 8)
    *number= mi_uint8korr(fact.data());
  else if (!fact.empty())
    return HA_ERR_CRASHED;
  return 0;
}

std::vector<uchar> encode_added(const std::vector<AddedColumn> &added)
{
  std::vector<uchar> bytes;
  for (const AddedColumn &column : added)
  {
    bytes.push_back(column.null);
    if (column.null)
      continue;
    uchar length[4];
    mi_int4store(length, column.packed.size());
    bytes.insert(bytes.end(), length, length + sizeof length);
    bytes.insert(bytes.end(), column.packed.begin(), column.packed.end());
  }
  return bytes;
}

bool decode_added(const std::vector<uchar> &bytes, std::vector<AddedColumn> *added)
{
  added->clear();
  for (size_t at= 0; at < bytes.size();)
  {
    AddedColumn column;
    column.null= bytes[at++] != 0;
    if (!column.null)
    {
      if (bytes.size() - at < 4)
        return false;
      size_t length= mi_uint4korr(bytes.data() + at);
      at+= 4;
      if (bytes.size() - at < length)
        return false;
      column.packed.assign(bytes.begin() + at, bytes.begin() + at + length);
      at+= length;
    }
    added->push_back(std::move(column));
  }
  return true;
}

std::vector<uchar> encode_order(const std::vector<uint16> &order)
{
  std::vector<uchar> bytes(2 * order.size());
  for (size_t i= 0; i < order.size(); i++)
    mi_int2store(bytes.data() + 2 * i, order[i]);
  return bytes;
}

bool decode_order(const std::vector<uchar> &bytes, size_t columns, std::vector<uint16> *order)
{
  order->clear();
  if (bytes.empty())
    return true;
  if (bytes.size() != 2 * columns)
    return false;
  std::vector<bool> seen(columns);
  for (size_t i= 0; i < columns; i++)
  {
    const uint16 place= mi_uint2korr(bytes.data() + 2 * i);
    if (place >= columns || seen[place])
      return false;
    seen[place]= true;
    order->push_back(place);
  }
  return true;
}
