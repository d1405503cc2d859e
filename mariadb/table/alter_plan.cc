/* SPDX-License-Identifier: GPL-2.0-only */
/* The steps of an ALTER, done one by one and noted. */
#include "table/alter_plan.h"
#include "table/meta.h"

int AlterPlan::do_first(ink_slice table, ink_error *error)
{
  const Step step= steps.front();
  int failed= step.new_name.empty()
                  ? ink_drop_tree(database, table, slice_of(step.tree), error)
                  : ink_rename_tree(database, table, slice_of(step.tree), slice_of(step.new_name), error);
  if (failed && error->code != INK_NOT_FOUND)
    return failed;
  steps.erase(steps.begin());
  return 0;
}

std::vector<uchar> AlterPlan::encode() const
{
  std::vector<uchar> bytes;
  for (const Step &step : steps)
  {
    bytes.insert(bytes.end(), step.tree.begin(), step.tree.end());
    bytes.push_back(0);
    bytes.insert(bytes.end(), step.new_name.begin(), step.new_name.end());
    bytes.push_back(0);
  }
  return bytes;
}

AlterPlan AlterPlan::decode(const std::vector<uchar> &bytes)
{
  AlterPlan plan;
  std::string words[2];
  int word= 0;
  for (uchar byte : bytes)
  {
    if (byte)
      words[word].push_back(static_cast<char>(byte));
    else if (++word == 2)
    {
      plan.steps.push_back({words[0], words[1]});
      words[0].clear();
      words[1].clear();
      word= 0;
    }
  }
  return plan;
}

int read_version(ink_slice table, std::vector<uchar> *version)
{
  ink_error error;
  OwnedTable opened;
  if (open_table(table, &opened, &error))
    return handler_error(nullptr, error);
  const ink_tree *meta= ink_table_find_tree(opened.get(), INK_STR(META_TREE));
  return meta ? meta_get(nullptr, meta, INK_STR("version"), version) : HA_ERR_CRASHED;
}
