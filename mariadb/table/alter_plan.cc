/* SPDX-License-Identifier: GPL-2.0-only */
/* The steps of an ALTER, done one by one and noted. */
#include "table/alter_plan.h"
#include "table/foreign_key.h"
#include "table/meta.h"

/* Whether a word begins with a marker; takes it off. */
static bool take(const char *marker, std::string *word)
{
  const size_t length= strlen(marker);
  if (word->compare(0, length, marker))
    return false;
  word->erase(0, length);
  return true;
}

static int change_tree(THD *thd, const std::string &table, const std::string &tree, const std::string &new_name)
{
  ink_error error;
  const int failed= new_name.empty()
                        ? ink_drop_tree(database_of(slice_of(table)), slice_of(table), slice_of(tree), &error)
                        : ink_rename_tree(database_of(slice_of(table)), slice_of(table), slice_of(tree), slice_of(new_name), &error);
  return failed && error.code != INK_NOT_FOUND ? handler_error(thd, error) : 0;
}

int AlterPlan::do_first(THD *thd, const std::string &table)
{
  Step step= steps.front();
  int failed;
  if (take(FOREIGN_KEY_DROPPED, &step.tree))
    failed= ::drop_foreign_key(thd, table, step.tree);
  else if (take(COLUMN_RENAMED, &step.tree))
    failed= rename_referring_columns(thd, table, step.tree, step.new_name);
  else
    failed= change_tree(thd, table, step.tree, step.new_name);
  if (!failed)
    steps.erase(steps.begin());
  return failed;
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
  const MetaTree meta= meta_tree_of(table, opened.get());
  return meta ? meta_get(nullptr, meta, INK_STR("version"), version) : HA_ERR_CRASHED;
}
