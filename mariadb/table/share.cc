/* SPDX-License-Identifier: GPL-2.0-only */
/* Opening a table of the engine, what its facts say, and what an ALTER in place changes of them. */
#include "table/share.h"
#include <algorithm>

/** Hidden row ids that are noted as used at a time, so that few inserts write a note. */
static const uint64 ROW_IDS_AHEAD= 1 << 16;

/* The counter of a table that was changed or dropped meanwhile is no loss. */
TableShare::~TableShare()
{
  if (table)
    counter.remember(nullptr);
}

int TableShare::read_image_version(THD *thd)
{
  if (int failed= meta_get_number(thd, meta, INK_STR("images"), &images))
    return failed;
  set_if_bigger(images, 1);
  room= images >= LONG_KEYS_SINCE ? KeyRoom(ink_key_bytes_max(database)) : KeyRoom();
  if (images <= IMAGE_VERSION)
    return 0;
  sql_print_error("Inkstone: table %s has key images of version %llu, and this plugin knows those up to %llu: install"
                  " the plugin that made it, or a newer one",
                  name.c_str(), (ulonglong) images, (ulonglong) IMAGE_VERSION);
  return HA_ERR_UNSUPPORTED;
}

int TableShare::open(THD *thd, const char *path, const TABLE_SHARE *definition)
{
  std::lock_guard<std::mutex> latch(mutex);
  if (table)
    return 0;
  name= TableName(path).text();
  /* The server calls the definition that an ALTER makes temporary, too: by it alone a snapshot
     would see a new index of any table. */
  is_kept_by_session= is_temporary_table(slice_of(name));
  int failed= open_engine_table(thd);
  if (!failed)
    failed= finish_alter(thd);
  if (!failed)
    failed= drop_unfinished(thd);
  if (!failed)
    failed= find_trees(thd, definition);
  if (!failed)
    failed= read_meta(thd, definition);
  if (!failed && is_temporary())
    failed= show_to_all_snapshots(thd);
  times_opened++;
  if (failed)
    table.reset();
  return failed;
}

int TableShare::open_engine_table(THD *thd)
{
  ink_error error;
  table.reset();
  if (open_table(slice_of(name), &table, &error))
    return handler_error(thd, error);
  if ((meta= meta_tree_of(slice_of(name), table.get())))
    return 0;
  sql_print_error("Inkstone: table %s lacks its tree of facts", name.c_str());
  return HA_ERR_CRASHED;
}

/* A temporary table is its session's own, which may have begun a transaction before it. */
int TableShare::show_to_all_snapshots(THD *thd)
{
  ink_error error;
  for (size_t i= 0; i < ink_table_tree_count(table.get()); i++)
    if (ink_complete_tree_for_all(home(), ink_table_tree(table.get(), i), &error))
      return handler_error(thd, error);
  return 0;
}

/* Carries out what is left of the last ALTER's plan. */
int TableShare::finish_alter(THD *thd)
{
  std::vector<uchar> bytes;
  if (int failed= meta_get(thd, meta, INK_STR("plan"), &bytes))
    return failed;
  if (bytes.empty())
    return 0;
  AlterPlan plan= AlterPlan::decode(bytes);
  while (!plan.empty())
  {
    if (int failed= plan.do_first(thd, name))
      return failed;
    /* The handle does not see the step; the facts' tree is as it was. */
    bytes= plan.encode();
    if (int failed= meta_put(thd, meta, {{INK_STR("plan"), slice_of(bytes)}}, INK_SYNC))
      return failed;
  }
  return open_engine_table(thd);
}

/* Trees of an ALTER that a crash ended before it had happened. None is being built by another
   statement: an ALTER that runs keeps the table open. */
int TableShare::drop_unfinished(THD *thd)
{
  ink_error error;
  std::vector<std::string> unfinished;
  for (size_t i= 0; i < ink_table_tree_count(table.get()); i++)
  {
    const std::string text= text_of(ink_tree_name(ink_table_tree(table.get(), i)));
    if (text.compare(0, sizeof BUILDING - 1, BUILDING) == 0)
      unfinished.push_back(text);
  }
  for (const std::string &tree : unfinished)
    if (ink_drop_tree(home(), slice_of(name), slice_of(tree), &error) && error.code != INK_NOT_FOUND)
      return handler_error(thd, error);
  return unfinished.empty() ? 0 : open_engine_table(thd);
}

/* What a table keeps that another one takes the place of. */
static const ink_slice KEPT_FACTS[]= {INK_STR("a"), INK_STR("run"), INK_STR("row_id"), INK_STR("kept"),
                                      INK_STR("renamed")};

int TableShare::take_facts_along(THD *thd, std::vector<std::vector<uchar>> *values, std::vector<ink_row> *facts)
{
  if (int failed= counter.remember(thd))
    return failed;
  for (const ink_slice &name : KEPT_FACTS)
  {
    values->emplace_back();
    if (int failed= meta_get(thd, meta, name, &values->back()))
      return failed;
    if (!values->back().empty())
      facts->push_back({name, slice_of(values->back())});
  }
  return 0;
}

/* Replacements take the names of their tables, in one step. A transaction may have begun while they
   were filled, and its snapshot would find few of the rows. */
static int replace(THD *thd, const std::vector<TableShare::Change> &changes)
{
  ink_error error;
  std::vector<ink_slice> from, to;
  for (const TableShare::Change &change : changes)
  {
    const ink_table *made= change.replacement->table.get();
    for (size_t i= 0; i < ink_table_tree_count(made); i++)
      if (ink_complete_tree(change.share->home(), ink_table_tree(made, i), &error))
        return handler_error(thd, error);
    from.push_back(slice_of(change.replacement->name));
    to.push_back(slice_of(change.share->name));
  }
  return ink_replace_tables(changes.front().share->home(), from.data(), to.data(), from.size(), &error) ? handler_error(thd, error) : 0;
}

int TableShare::alter(THD *thd, const std::vector<Change> &changes, const LEX_CUSTRING &version,
                      const TABLE_SHARE *definition)
{
  /* What the facts below lend out. */
  std::vector<std::vector<uchar>> values;
  values.reserve((2 + array_elements(KEPT_FACTS)) * changes.size());
  std::vector<MetaFacts> tables;
  const bool replaces= changes.front().replacement != nullptr;
  int failed= 0;
  for (const Change &change : changes)
  {
    std::lock_guard<std::mutex> latch(change.share->mutex);
    values.push_back(change.layout->encode());
    const std::vector<uchar> &columns= values.back();
    values.push_back(change.plan->encode());
    const std::vector<uchar> &steps= values.back();
    const MetaTree meta= replaces ? meta_tree_of(slice_of(change.share->name), change.replacement->table.get())
                                  : change.share->meta;
    tables.push_back({meta,
                      {{INK_STR("version"), {version.str, version.length}},
                       {INK_STR("columns"), slice_of(columns)},
                       {INK_STR("order"), change.layout->is_plain() ? ink_slice() : INK_STR("columns")},
                       {INK_STR("added"), ink_slice()},
                       {INK_STR("plan"), slice_of(steps)}}});
    if (replaces && !failed)
      failed= change.share->take_facts_along(thd, &values, &tables.back().facts);
  }
  failed= failed ? failed : meta_put_all(thd, tables, INK_SYNC);
  if (replaces)
    failed= failed ? failed : replace(thd, changes);
  else
    for (const Change &change : changes)
      failed= failed ? failed : change.share->counter.remember(thd);
  for (const Change &change : changes)
    failed= failed ? failed : change.share->reopen(thd, definition);
  return failed;
}

/* A definition and a table that do not belong together: one of them was put there by hand. */
static int other_definition(THD *thd, const std::string &name, const std::string &difference)
{
  ink_error error;
  error.code= INK_INVALID;
  snprintf(error.message, sizeof error.message, "the server's definition (.frm) of table %s is of another table: it %s",
           name.c_str(), difference.c_str());
  sql_print_error("Inkstone: %s", error.message);
  return handler_error(thd, error);
}

int TableShare::find_trees(THD *thd, const TABLE_SHARE *definition)
{
  trees.assign(definition->keys, nullptr);
  for (uint i= 0; i < definition->keys; i++)
  {
    if (i == definition->primary_key)
      continue;
    trees[i]= ink_table_find_tree(table.get(), slice_of(definition->key_info[i].name));
    if (!trees[i])
    {
      const std::string index= definition->key_info[i].name.str;
      return other_definition(thd, name, "has an index " + index + " that the table lacks");
    }
  }
  by_age.clear();
  for (size_t at= 0; at < ink_table_tree_count(table.get()); at++)
  {
    const auto found= std::find(trees.begin(), trees.end(), ink_table_tree(table.get(), at));
    if (found != trees.end())
      by_age.push_back(static_cast<uint>(found - trees.begin()));
  }
  return 0;
}

/* Which columns rows have. */
int TableShare::read_columns(THD *thd, const TABLE_SHARE *definition)
{
  std::vector<uchar> columns, order, added;
  size_t stored= 0;
  for (Field **field= definition->field; *field; field++)
    stored+= (*field)->stored_in_db();
  for (const auto &fact : {std::make_pair(INK_STR("columns"), &columns), std::make_pair(INK_STR("order"), &order),
                           std::make_pair(INK_STR("added"), &added)})
    if (int failed= meta_get(thd, meta, fact.first, fact.second))
      return failed;
  std::shared_ptr<RowLayout> found= std::make_shared<RowLayout>();
  if (!(columns.empty() ? found->decode_order(order, added, stored) : found->decode(columns, stored)))
    return other_definition(thd, name,
                            "has " + std::to_string(stored) + " stored columns, and rows have another number");
  layout= found;
  return 0;
}

int TableShare::read_meta(THD *thd, const TABLE_SHARE *definition)
{
  std::vector<uchar> bytes;
  int failed= meta_get_number(thd, meta, INK_STR("row_id"), &next_row_id);
  if (!failed)
    failed= read_image_version(thd);
  if (!failed)
    failed= counter.read(thd, meta, definition);
  if (!failed)
    failed= read_columns(thd, definition);
  if (!failed)
    failed= meta_get(thd, meta, INK_STR("discarded"), &bytes);
  discarded= !bytes.empty();
  if (!failed)
    failed= read_values(thd, definition);
  set_if_bigger(next_row_id, 1);
  row_ids_noted= next_row_id;
  return failed;
}

int TableShare::take_row_ids(THD *thd, uint64 count, uint64 *first)
{
  std::lock_guard<std::mutex> latch(mutex);
  if (next_row_id + count > row_ids_noted)
  {
    uint64 noted= next_row_id + count + ROW_IDS_AHEAD;
    if (int failed= meta_put_number(thd, meta, INK_STR("row_id"), noted))
      return failed;
    row_ids_noted= noted;
  }
  *first= next_row_id;
  next_row_id+= count;
  return 0;
}

int TableShare::reopen(THD *thd, const TABLE_SHARE *definition)
{
  std::string path= name;
  {
    std::lock_guard<std::mutex> latch(mutex);
    table.reset();
    has_statistics= false;
    values.clear();
  }
  return open(thd, path.c_str(), definition);
}
