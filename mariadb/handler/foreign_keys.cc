/* SPDX-License-Identifier: GPL-2.0-only */
/* Foreign keys at each row: a child's parent is looked for, and locked, before the child's entry is
   inserted; behind a change of a parent its children are looked for, which refuse it or follow it.
   Children that follow are changed by a handler of theirs, which the server opens with the
   statement's tables (get_parent_foreign_key_list); it logs none of that, and replicas do the same
   once more. */
#include "handler/ha_inkstone.h"
#include "sql_parse.h"
#include <algorithm>

/** How many tables deep children follow, as in InnoDB. */
static const uint CASCADE_DEPTH_MAX= 15;

/* The parent is not to be dropped or altered while the statement runs. */
static int lock_parent(THD *thd, const ForeignKey &key)
{
  const SqlName parent(key.parent);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, parent.database.c_str(), parent.table.c_str(), MDL_SHARED,
                   MDL_STATEMENT);
  return thd->mdl_context.acquire_lock(&request, static_cast<double>(thd->variables.lock_wait_timeout))
             ? HA_ERR_INKSTONE
             : 0;
}

/* Until the statement's end. */
int ha_inkstone::lock_parents(THD *thd)
{
  for (const auto &reference : references.to_parents)
  {
    if (index_of_columns(table, reference->key.columns) < 0)
    {
      sql_print_error("Inkstone: table %s lacks an index for its foreign key %s; make one, or drop the key",
                      access.share->name.c_str(), reference->key.name.c_str());
      return HA_ERR_CRASHED;
    }
    if (reference->key.parent != access.share->name)
      if (int failed= lock_parent(thd, reference->key))
        return failed;
  }
  return 0;
}

/* Before a statement changes rows. A parent may have been altered until it was locked. */
int ha_inkstone::prepare_references(THD *thd)
try
{
  checks_references= false;
  if (table->s->tmp_table != NO_TMP_TABLE && !fills_altered(thd))
    return 0;
  do
  {
    if (int failed= references.refresh(thd, access.share->name))
      return failed;
    if (!checks_foreign_keys(thd) || (!references.is_child() && !references.is_parent()))
      return 0;
    if (int failed= lock_parents(thd))
      return failed;
  } while (!references.are_fresh());
  checks_references= true;
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

/* Whether rows that are inserted must have parents. */
bool ha_inkstone::looks_for_parents() const
{
  if (!checks_references || !references.is_child())
    return false;
  return !fills_altered(thd()) || !access.session->added_foreign_keys.empty();
}

/* The copy that an ALTER fills: its rows are looked at by the foreign keys that it adds. */
bool ha_inkstone::fills_altered(THD *thd) const
{
  const Session *session= session_of(thd);
  return session && session->adds_foreign_keys == thd->query_id;
}

bool ha_inkstone::is_checked(const Reference &reference) const
{
  return !fills_altered(thd()) || access.session->added_foreign_keys.count(reference.key.name);
}

static int refused(THD *thd, const ForeignKey &key, bool of_child)
{
  note_foreign_key_error(thd, key, of_child);
  return of_child ? HA_ERR_NO_REFERENCED_ROW : HA_ERR_ROW_IS_REFERENCED;
}

/* Whether a row has a parent. */
int ha_inkstone::check_parent(Reference &reference, const uchar *record)
{
  int failed= reference.bind(thd(), table, access.share->indexes_by_age());
  if (reference.own_index < 0)
    return failed ? failed : HA_ERR_CRASHED;
  if (reference.has_null(codec, record))
    return 0;
  if (failed)
    return failed == HA_ERR_NO_SUCH_TABLE || failed == HA_ERR_WRONG_INDEX ? refused(thd(), reference.key, true) : failed;
  Buffer image;
  bool found;
  if (reference.put_image(image, codec, record))
    return HA_ERR_OUT_OF_MEM;
  if ((failed= find_by_image(thd(), transaction(), reference, image, &found)))
    return failed;
  return found ? 0 : refused(thd(), reference.key, true);
}

/* Whether the columns of a foreign key on this side are those of the index. */
bool ha_inkstone::concerns(Reference &reference, uint index) const
{
  return reference.find_own(table, access.share->indexes_by_age()) &&
         static_cast<uint>(reference.own_index) == index;
}

/* Before an entry is inserted in an index: the parents that its columns refer to. */
int ha_inkstone::check_parents(uint index, const uchar *record)
try
{
  if (!checks_references)
    return 0;
  for (const auto &reference : references.to_parents)
  {
    if (!concerns(*reference, index) || !is_checked(*reference) || reference->key.name == follows_key)
      continue;
    if (int failed= check_parent(*reference, record))
      return failed;
  }
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

/* Whether children have to be looked for when the row changes, or goes (`record` is nullptr). */
bool ha_inkstone::concerns_children(const Reference &reference, const uchar *old_record, const uchar *record) const
{
  return !reference.has_null(codec, old_record) && (!record || reference.differ(codec, old_record, record));
}

/* Whether the row's entry in an index may change, or go (`record` is nullptr): no child may be left
   that refers to it and does not follow. Its own entries in younger indexes are still there: a row
   that refers to itself by one of them is its own child, as in InnoDB. */
int ha_inkstone::refuse_children(uint index, const uchar *old_record, const uchar *record)
try
{
  if (!checks_references)
    return 0;
  for (const auto &reference : references.to_children)
  {
    Buffer image;
    bool found;
    if (reference->key.changes_children(record != nullptr) || !concerns(*reference, index))
      continue;
    int failed= put_children_image(*reference, old_record, record, &image);
    if (!failed && image.length())
      failed= find_by_image(thd(), transaction(), *reference, image, &found);
    if (failed || (image.length() && found))
      return failed ? failed : refused(thd(), reference->key, false);
  }
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

/* Behind the change of a row, or its deletion: children that follow it. Other rows of the table may
   do so, and come into the same records. */
int ha_inkstone::change_children(const uchar *old_record, const uchar *record)
try
{
  if (!checks_references || !references.is_parent())
    return 0;
  const size_t length= table->s->reclength;
  std::vector<uchar> old_row(old_record, old_record + length), row;
  if (record)
    row.assign(record, record + length);
  const uchar *const now= record ? row.data() : nullptr;
  for (const auto &reference : references.to_children)
  {
    Buffer image;
    if (!reference->key.changes_children(record != nullptr))
      continue;
    int failed= put_children_image(*reference, old_row.data(), now, &image);
    if (!failed && image.length())
      failed= change_children_by(*reference, image, now);
    if (failed)
      return failed;
  }
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

/* What the keys of a row's children begin with, in their index; nothing: they need not be looked
   for. Where the index was dropped without a look at foreign keys, there may be some: the change is
   refused, as by InnoDB. */
int ha_inkstone::put_children_image(Reference &reference, const uchar *old_record, const uchar *record, Buffer *image)
{
  const int failed= reference.bind(thd(), table, access.share->indexes_by_age());
  if (failed && failed != HA_ERR_WRONG_INDEX)
    return failed == HA_ERR_NO_SUCH_TABLE ? 0 : failed;
  if (!concerns_children(reference, old_record, record))
    return 0;
  if (failed)
    return refused(thd(), reference.key, false);
  return reference.put_image(*image, codec, old_record) ? HA_ERR_OUT_OF_MEM : 0;
}

/* While children of a row follow it: the row is one of the session's. */
class Following
{
public:
  Following(Session *of, const std::string &table, bool is_updated) : session(of)
  {
    session->followed.push_back({table, is_updated});
  }
  ~Following() { session->followed.pop_back(); }
  Following(const Following &)= delete;
  Following &operator=(const Following &)= delete;

private:
  Session *const session;
};

/* An update of a table that changes it again, in whatever way round, is refused, as by InnoDB. */
static bool is_being_updated(const Session *session, const std::string &table)
{
  return std::any_of(session->followed.begin(), session->followed.end(),
                     [&](const FollowedRow &row) { return row.is_updated && row.table == table; });
}

int ha_inkstone::change_children_by(const Reference &reference, const Buffer &image, const uchar *record)
{
  const ForeignKey &key= reference.key;
  ha_inkstone *child= opened_child(key);
  if (!child)
    return refused(thd(), key, false);
  if (access.session->followed.size() >= CASCADE_DEPTH_MAX)
  {
    push_warning_printf(thd(), Sql_condition::WARN_LEVEL_WARN, HA_ERR_ROW_IS_REFERENCED,
                        "INKSTONE: Cannot delete/update rows with cascading foreign key constraints that exceed max depth"
                        " of %u. Please drop extra constraints and try again", CASCADE_DEPTH_MAX);
    note_foreign_key_error(thd(), key, false);
    return HA_ERR_FK_DEPTH_EXCEEDED;
  }
  Following following(access.session, access.share->name, record != nullptr);
  return child->follow(reference, image, *this, record);
}

/* The handler that the server has opened for the children. */
ha_inkstone *ha_inkstone::opened_child(const ForeignKey &key) const
{
  const SqlName child(key.child);
  for (TABLE *open= thd()->open_tables; open; open= open->next)
  {
    const TABLE_LIST *const placed= open->pos_in_table_list;
    if (placed && placed->prelocking_placeholder == TABLE_LIST::PRELOCK_FK && open->file->ht == inkstone_hton &&
        child.database == open->s->db.str && child.table == open->s->table_name.str)
      return static_cast<ha_inkstone *>(open->file);
  }
  return nullptr;
}

/* Rows of this table, the child, follow their parent's, whose record is `record` now; nullptr: it
   is deleted. They are collected before any is changed. None has its new parent looked for. */
int ha_inkstone::follow(const Reference &reference, const Buffer &image, const ha_inkstone &parent, const uchar *record)
{
  std::vector<std::string> rows;
  access.session= session_of(thd());
  const bool is_deleted= !record && reference.key.on_delete == INK_CASCADE;
  const std::string outer= follows_key;
  follows_key= reference.key.name;
  MY_BITMAP *const read= table->read_set, *const write= table->write_set;
  table->column_bitmaps_set_no_signal(&table->s->all_set, &table->s->all_set);
  int failed= collect(reference, image, &rows);
  if (!failed && !rows.empty() && !is_deleted && is_being_updated(access.session, access.share->name))
    failed= refused(thd(), reference.key, false);
  for (size_t i= 0; i < rows.size() && !failed; i++)
    failed= follow_row(slice_of(rows[i]), reference, parent, record);
  table->column_bitmaps_set_no_signal(read, write);
  follows_key= outer;
  return failed;
}

/* The clustered keys of the rows of an image in the child's index; their entries are locked. */
int ha_inkstone::collect(const Reference &reference, const Buffer &image, std::vector<std::string> *rows)
{
  const uint index= static_cast<uint>(reference.other_index);
  Scan found(access, codec);
  if (found.search.low.assign(image.data(), image.length()))
    return HA_ERR_OUT_OF_MEM;
  if (int failed= found.search.find(HA_READ_KEY_EXACT))
    return failed == HA_ERR_KEY_NOT_FOUND ? 0 : failed;
  found.begin();
  int failed= found.seek_found(tree_of(index), true);
  for (ink_row *row; !failed && !(failed= found.next(false, &row));)
  {
    ink_slice row_key= row->key;
    size_t extras_at;
    if (!codec.is_clustered(index) && !codec.indexes[index].row_key(row->key, row->value, scratch, &row_key, &extras_at))
      failed= HA_ERR_CRASHED;
    else
      rows->push_back(text_of(row_key));
  }
  return failed == HA_ERR_END_OF_FILE || failed == HA_ERR_KEY_NOT_FOUND ? 0 : failed;
}

int ha_inkstone::follow_row(ink_slice row_key, const Reference &reference, const ha_inkstone &parent,
                            const uchar *record)
{
  bool found;
  uchar *const row= table->record[0];
  if (int failed= get_row(row_key, row, &found))
    return failed;
  /* Another child of the same parent, or a row that followed before it, has taken it along. */
  if (!found)
    return 0;
  if (table->vfield)
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  const uint32_t action= record ? reference.key.on_update : reference.key.on_delete;
  if (!record && action == INK_CASCADE)
    return delete_row(row);
  uchar *const old_row= table->record[1];
  memcpy(old_row, row, table->s->reclength);
  if (int failed= put_parent(reference, parent, action == INK_SET_NULL ? nullptr : record))
    return failed;
  if (table->vfield)
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_WRITE);
  const int failed= update_row(old_row, row);
  if (failed == HA_ERR_FOUND_DUPP_KEY)
    return note_refusing_child();
  return failed == HA_ERR_RECORD_IS_THE_SAME ? 0 : failed;
}

/* A child's value that its column does not take. */
static bool is_taken(Field *column, Field *from)
{
  return !field_conv(column, from) && column->cmp(from->ptr, column->ptr) == 0;
}

/* Puts the parent's columns into the record, or NULL if its record is nullptr. */
int ha_inkstone::put_parent(const Reference &reference, const ha_inkstone &parent, const uchar *record)
{
  const ForeignKey &key= reference.key;
  for (size_t i= 0; i < key.columns.size(); i++)
  {
    Field *column= find_column(table, key.columns[i]);
    if (!record)
    {
      column->set_null();
      column->reset();
      continue;
    }
    Field *from= find_column(parent.table, key.parent_columns[i]);
    const my_ptrdiff_t moved= record - parent.table->record[0];
    from->move_field_offset(moved);
    const bool is_null= from->is_null();
    if (is_null)
      column->set_null();
    else
      column->set_notnull();
    const bool taken= is_null || is_taken(column, from);
    from->move_field_offset(-moved);
    if (!taken || (is_null && !column->real_maybe_null()))
      return refused(thd(), key, false);
  }
  return 0;
}

int ha_inkstone::note_refusing_child()
{
  const uint index= access.session->duplicate_index;
  access.session->refusing_child= table->s->table_name.str;
  access.session->refusing_index= index < table->s->keys ? table->key_info[index].name.str : "";
  return HA_ERR_FOREIGN_DUPLICATE_KEY;
}

bool ha_inkstone::get_foreign_dup_key(char *child, uint child_bytes, char *index, uint index_bytes)
{
  const Session *session= session_of(ha_thd());
  if (!session)
    return false;
  strmake(child, session->refusing_child.c_str(), child_bytes - 1);
  strmake(index, session->refusing_index.c_str(), index_bytes - 1);
  return true;
}

/* What the server asks about the table. */

static LEX_CSTRING *lend(THD *thd, const std::string &text)
{
  return thd_make_lex_string(thd, nullptr, text.data(), text.size(), 1);
}

static enum_fk_option option_of(uint32_t action)
{
  static const enum_fk_option options[]= {FK_OPTION_RESTRICT, FK_OPTION_NO_ACTION, FK_OPTION_CASCADE,
                                          FK_OPTION_SET_NULL};
  return action <= INK_SET_NULL ? options[action] : FK_OPTION_UNDEF;
}

static void note_nullable(THD *thd, FOREIGN_KEY_INFO *info, const TABLE *form, const std::vector<std::string> &columns,
                          bool of_parent)
{
  for (uint i= 0; form && i < columns.size(); i++)
  {
    const Field *column= find_column(form, columns[i]);
    if (column && column->real_maybe_null())
      info->set_nullable(thd, of_parent, i, static_cast<uint>(columns.size()));
  }
}

/* Which tables and columns, and what becomes of children. */
static FOREIGN_KEY_INFO *info_of(THD *thd, const ForeignKey &key)
{
  const SqlName child(key.child), parent(key.parent);
  void *memory= thd_alloc(thd, sizeof(FOREIGN_KEY_INFO));
  if (!memory)
    return nullptr;
  FOREIGN_KEY_INFO *info= new (memory) FOREIGN_KEY_INFO;
  info->foreign_id= lend(thd, key.name);
  info->foreign_db= lend(thd, child.database);
  info->foreign_table= lend(thd, child.table);
  info->referenced_db= lend(thd, parent.database);
  info->referenced_table= lend(thd, parent.table);
  info->update_method= option_of(key.on_update);
  info->delete_method= option_of(key.on_delete);
  info->referenced_key_name= nullptr;
  for (const std::string &column : key.columns)
    if (info->foreign_fields.push_back(lend(thd, column), thd->mem_root))
      return nullptr;
  for (const std::string &column : key.parent_columns)
    if (info->referenced_fields.push_back(lend(thd, column), thd->mem_root))
      return nullptr;
  return info;
}

/* What the definitions of both tables say of these columns. The server also asks before it has
   locked the other table, whose definition an ALTER may be about to exchange: what is found now is
   not kept for rows, which would look into other indexes. */
static void describe_columns(THD *thd, FOREIGN_KEY_INFO *info, Reference &for_rows, const TABLE *own,
                             const std::vector<uint> &by_age)
{
  std::unique_ptr<Reference> for_now;
  if (!for_rows.is_bound())
    for_now.reset(new Reference(for_rows.key, for_rows.is_parent));
  Reference &reference= for_now ? *for_now : for_rows;
  const ForeignKey &key= reference.key;
  const bool bound= !reference.bind(thd, own, by_age);
  const TABLE *const other= bound ? reference.other->form() : nullptr;
  const TABLE *const of_parent= reference.is_parent ? own : other;
  const int index= reference.is_parent ? reference.own_index : reference.other_index;
  if (of_parent && index >= 0)
    info->referenced_key_name= lend(thd, of_parent->key_info[index].name.str);
  note_nullable(thd, info, reference.is_parent ? other : own, key.columns, false);
  note_nullable(thd, info, of_parent, key.parent_columns, true);
}

int ha_inkstone::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
try
{
  if (int failed= references.refresh(thd, access.share->name))
    return failed;
  for (const auto &reference : references.to_parents)
  {
    FOREIGN_KEY_INFO *info= info_of(thd, reference->key);
    if (!info || list->push_back(info, thd->mem_root))
      return HA_ERR_OUT_OF_MEM;
    describe_columns(thd, info, *reference, table, access.share->indexes_by_age());
  }
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

int ha_inkstone::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
try
{
  /* A statement that changes rows asks which tables to lock, and for no more. */
  const bool changes_rows= !(sql_command_flags[thd_sql_command(thd)] & (CF_AUTO_COMMIT_TRANS | CF_STATUS_COMMAND));
  if (int failed= references.refresh(thd, access.share->name))
    return failed;
  for (const auto &reference : references.to_children)
  {
    FOREIGN_KEY_INFO *info= info_of(thd, reference->key);
    if (!info || list->push_back(info, thd->mem_root))
      return HA_ERR_OUT_OF_MEM;
    if (!changes_rows)
      describe_columns(thd, info, *reference, table, access.share->indexes_by_age());
  }
  return 0;
}
catch (const std::bad_alloc &)
{
  return HA_ERR_OUT_OF_MEM;
}

bool ha_inkstone::referenced_by_foreign_key() const noexcept
try
{
  if (!access.share || table->s->tmp_table != NO_TMP_TABLE)
    return false;
  References &looked_up= const_cast<ha_inkstone *>(this)->references;
  return looked_up.refresh(ha_thd(), access.share->name) || looked_up.is_parent();
}
catch (const std::bad_alloc &)
{
  return true;
}

bool ha_inkstone::can_switch_engines()
try
{
  return !references.refresh(ha_thd(), access.share->name) && !references.is_child() && !references.is_parent();
}
catch (const std::bad_alloc &)
{
  return false;
}

char *ha_inkstone::get_foreign_key_create_info()
try
{
  std::string text;
  if (references.refresh(ha_thd(), access.share->name))
    return nullptr;
  for (const auto &reference : references.to_parents)
    text+= ",\n  " + describe(ha_thd(), reference->key);
  return my_strdup(PSI_INSTRUMENT_ME, text.c_str(), MYF(0));
}
catch (const std::bad_alloc &)
{
  return nullptr;
}

void ha_inkstone::free_foreign_key_create_info(char *text)
{
  my_free(text);
}
