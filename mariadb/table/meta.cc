/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading and writing facts, and what some of them look like (table/meta.h). */
#include "table/meta.h"

int meta_put_all(THD *thd, const std::vector<MetaFacts> &tables, uint32_t durability)
{
  ink_error error;
  if (tables.empty())
    return 0;
  std::vector<ink_tree_row> rows;
  for (const MetaFacts &table : tables)
    for (const ink_row &fact : table.facts)
      rows.push_back({table.meta.tree, fact.key, fact.value});
  return ink_write_rows(tables.front().meta.home, rows.data(), rows.size(), durability, &error) ? handler_error(thd, error) : 0;
}

int meta_put(THD *thd, const MetaTree &meta, std::initializer_list<ink_row> facts,
             uint32_t durability)
{
  return meta_put_all(thd, {{meta, facts}}, durability);
}

int meta_get(THD *thd, const MetaTree &meta, ink_slice name, std::vector<uchar> *fact)
{
  ink_error error;
  OwnedBytes value;
  bool found;
  fact->clear();
  if (ink_read_row(meta.home, meta.tree, name, value.to_fill(), &found, &error))
    return handler_error(thd, error);
  fact->assign(value.slice().data, value.slice().data + value.slice().len);
  return 0;
}

int meta_put_number(THD *thd, const MetaTree &meta, ink_slice name, uint64 number)
{
  uchar bytes[8];
  mi_int8store(bytes, number);
  return meta_put(thd, meta, {{name, {bytes, sizeof bytes}}}, INK_LAZY);
}

int meta_get_number(THD *thd, const MetaTree &meta, ink_slice name, uint64 *number)
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
