/* SPDX-License-Identifier: GPL-2.0-only */
/* Opening and locking a table, and what the server may expect of it. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"
#include <functional>

/* The server has these for its engines, and declares them nowhere. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);

ha_inkstone::ha_inkstone(handlerton *hton, TABLE_SHARE *table_arg)
    : handler(hton, table_arg), share(nullptr), session(nullptr), own(nullptr), is_change_noted(false), codec_of(0),
      texts_since(1), lock(INK_LOCK_NONE),
      wait(INK_WAIT), lock_type_is_write(false), cursor(nullptr), cursor_tree(nullptr), row_at(0),
      row_count(0), fetch_next(1), scanning(false), scan_backward(false), semi_consistent(false),
      shown_unlocked(false), scan_is_bounded(false), stop_at_bound(false), use_end_range(false), edge_bound(0), at_edge(false), current(), value(), entry_value(), row_id(),
      ignores_duplicates(false), bulk(nullptr), auto_increment_last(0),
      auto_increment_step(1), auto_increment_offset(0), exporting(nullptr)
{
}

ha_inkstone::~ha_inkstone()
{
  ink_buffer_free(&value);
  ink_buffer_free(&entry_value);
}

handler::Table_flags ha_inkstone::table_flags() const
{
  Table_flags flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_VIRTUAL_COLUMNS |
                     HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                     HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_PRIMARY_KEY_IN_READ_INDEX |
                     HA_BINLOG_ROW_CAPABLE | HA_PARTIAL_COLUMN_READ | HA_TABLE_SCAN_ON_INDEX |
                     HA_CAN_EXPORT | HA_ONLINE_ANALYZE | HA_CONCURRENT_OPTIMIZE |
                     HA_CAN_SKIP_LOCKED | HA_CAN_GEOMETRY |
                     HA_CAN_TABLES_WITHOUT_ROLLBACK;
  /* Statements can be replayed in the order of commits only where reads that count lock, gaps
     too. */
  if (locks_gaps(ha_thd()))
    return flags | HA_BINLOG_STMT_CAPABLE;
  /* Keys that the server keeps unique by hashes: without locks of gaps two could look before either
     writes. */
  return flags | HA_CHECK_UNIQUE_AFTER_WRITE;
}

ulong ha_inkstone::index_flags(uint index, uint, bool) const
{
  const ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE |
                     HA_KEYREAD_ONLY | HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  return index == table_share->primary_key ? flags | HA_CLUSTERED_INDEX : flags;
}

/* As InnoDB's, which are longer in pages of 4 KiB than pages would say. Whether the image of a key
   fits into a page is another matter (long_keys.h). */
uint ha_inkstone::max_supported_key_length() const
{
  const size_t in_tree= ink_key_bytes_max(database);
  return in_tree <= 768 ? 1173 : static_cast<uint>(in_tree);
}

int ha_inkstone::open(const char *name, int, uint)
{
  try
  {
    if (!(share= get_share()))
      return HA_ERR_OUT_OF_MEM;
    if (int failed= share->open(ha_thd(), name, table->s))
      return failed;
    if (table->s->primary_key < MAX_KEY)
      clustered.init(table->key_info[table->s->primary_key], nullptr, &share->key_room());
    indexes.resize(table->s->keys);
    for (uint i= 0; i < table->s->keys; i++)
      indexes[i].init(table->key_info[i], is_clustered(i) ? nullptr : &clustered, &share->key_room());
    row_codec.init(table, clustered, share->column_order());
    codec_of= share->opened();
    for (const KeyCodec &index : indexes)
      for (const KeyPartCodec &part : index.parts())
        set_if_bigger(texts_since, part.images_since());
    if (is_outdated())
      hide_outdated_indexes();
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  /* An UPDATE of the primary key must not meet its own rows again. */
  key_used_on_scan= table->s->primary_key;
  ref_length= hidden_row_id() ? ROW_ID_BYTES
                              : table->key_info[table->s->primary_key].key_length;
  stats.block_size= 16384;
  if (int failed= find_auto_increment())
    return failed;
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

/* Statements find their rows without the indexes. CHECK TABLE asks for upgrades only where the
   definition is of an older server. */
void ha_inkstone::hide_outdated_indexes()
{
  mysql_mutex_lock(&table->s->LOCK_share);
  table->s->keys_in_use.clear_all();
  table->s->keys_for_keyread.clear_all();
  set_if_smaller(table->s->mysql_version, MYSQL_VERSION_ID - 1);
  mysql_mutex_unlock(&table->s->LOCK_share);
}

int ha_inkstone::close()
{
  close_cursor();
  ink_transaction_free(own);
  own= nullptr;
  return 0;
}

handler *ha_inkstone::clone(const char *name, MEM_ROOT *mem_root)
{
  ha_inkstone *copy= static_cast<ha_inkstone *>(handler::clone(name, mem_root));
  if (copy)
  {
    copy->session= session;
    copy->lock= lock;
    copy->wait= wait;
    copy->lock_type_is_write= lock_type_is_write;
  }
  return copy;
}

TableShare *ha_inkstone::get_share()
{
  lock_shared_ha_data();
  TableShare *found= static_cast<TableShare *>(get_ha_share_ptr());
  if (!found && (found= new (std::nothrow) TableShare()))
    set_ha_share_ptr(found);
  unlock_shared_ha_data();
  return found;
}

int ha_inkstone::use_session(THD *thd)
{
  session= session_of(thd);
  return session ? 0 : HA_ERR_OUT_OF_MEM;
}

/* TRUNCATE and IMPORT TABLESPACE exchange what this handler has open. */
void ha_inkstone::use_column_order()
{
  if (codec_of == share->opened())
    return;
  row_codec.init(table, clustered, share->column_order());
  codec_of= share->opened();
}

/* Virtual columns of the row in the record. The server computes none for covering reads, of which
   this may be one that wanted the row (wants_unread_key). */
void ha_inkstone::compute_virtual()
{
  const uint covered= keyread;
  keyread= MAX_KEY;
  table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  keyread= covered;
}

/* The server computes virtual columns in record[0], and in record[1] for a row that is replaced.
   Ordered scans of partitions read into places of their own, and compare the index's columns there.
   HANDLER keeps such rows for its next statement. */
int ha_inkstone::complete_apart(uchar *record)
{
  if (!table->part_info || record == table->record[0] || record == table->record[1])
  {
    /* Where indexes are merged the server says of the first one that it wants nothing but keys,
       computes nothing for the others, and compares a range's end with what stands there. */
    if (record == table->record[0] && table->vfield && keyread_enabled() && !covering())
      compute_virtual();
    return 0;
  }
  const my_ptrdiff_t moved= record - table->record[0];
  if (table->vfield)
  {
    for (Field **field= table->field; *field; field++)
      (*field)->move_field_offset(moved);
    compute_virtual();
    for (Field **field= table->field; *field; field++)
      (*field)->move_field_offset(-moved);
  }
  return keep_blobs(record) ? HA_ERR_OUT_OF_MEM : 0;
}

/* Copies what the next row that is computed, or the end of the transaction, would take away. */
bool ha_inkstone::keep_blobs(uchar *record)
{
  const bool handler_reads= thd_sql_command(thd()) == SQLCOM_HA_READ;
  const auto each= [&](const std::function<void(uchar *, size_t)> &visit) {
    for (uint i= 0; i < table->s->blob_fields; i++)
    {
      const Field_blob *blob= static_cast<const Field_blob *>(table->field[table->s->blob_field[i]]);
      uchar *at= record + (blob->ptr - table->record[0]);
      if ((handler_reads || !blob->stored_in_db()) && bitmap_is_set(table->read_set, blob->field_index) &&
          !blob->is_null_in_record(record))
        visit(at + blob->pack_length_no_ptr(), blob->get_length(at));
    }
  };
  size_t bytes= 0;
  each([&](uchar *, size_t length) { bytes+= length; });
  kept_blobs.clear();
  if (kept_blobs.reserve(bytes))
    return true;
  each([&](uchar *pointer, size_t length) {
    const uchar *data, *copy= kept_blobs.end();
    memcpy(&data, pointer, sizeof data);
    kept_blobs.append(data, length);
    memcpy(pointer, &copy, sizeof copy);
  });
  return false;
}

/* Which reads lock is decided as InnoDB does it: everything but a plain SELECT does, so that
   statements that change data see the newest rows. external_lock makes the locks of written tables
   exclusive. */
THR_LOCK_DATA **ha_inkstone::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type)
{
  const int command= thd_sql_command(thd);
  if (lock_type == TL_IGNORE || command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_SEQUENCE)
    return to;
  wait= lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED ? INK_SKIP_LOCKED
                                                                             : INK_WAIT;
  const bool locks_tables= thd_in_lock_tables(thd);
  const bool plain_read= lock_type == TL_READ || lock_type == TL_READ_NO_INSERT;
  if (command == SQLCOM_FLUSH && lock_type == TL_READ_NO_INSERT)
    lock= INK_LOCK_NONE;
  else if ((lock_type == TL_READ && locks_tables) ||
           (lock_type == TL_READ_HIGH_PRIORITY && locks_tables) ||
           lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_SKIP_LOCKED ||
           lock_type == TL_READ_NO_INSERT || command != SQLCOM_SELECT)
  {
    const bool consistent=
        command == SQLCOM_CHECKSUM || command == SQLCOM_CREATE_SEQUENCE ||
        (command == SQLCOM_ANALYZE && lock_type == TL_READ) ||
        (thd_tx_isolation(thd) <= ISO_READ_COMMITTED && plain_read &&
         (command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT ||
          command == SQLCOM_UPDATE || command == SQLCOM_CREATE_TABLE));
    lock= consistent ? INK_LOCK_NONE : INK_LOCK_SHARED;
  }
  else
    lock= INK_LOCK_NONE;
  return to;
}

/* That an earlier statement was about no partition at all the server forgets only at a SELECT: an
   UPDATE or DELETE by an index would find no rows. Those that are about none themselves have ended
   when tables are locked, and SELECT comes to it later. */
static void forget_pruned(TABLE *table)
{
#ifdef WITH_PARTITION_STORAGE_ENGINE
  table->all_partitions_pruned_away= false;
#endif
}

int ha_inkstone::external_lock(THD *thd, int lock_type)
{
  if (int failed= use_session(thd))
    return failed;
  if (lock_type == F_UNLCK)
  {
    suspend();
    end_export();
    ink_transaction_free(own);
    own= nullptr;
    if (session->tables_in_use && --session->tables_in_use)
      return 0;
    /* What was not registered as a statement (a handler's read) ends here. */
    if (!thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
      return session->commit();
    return session->end_statement();
  }
  if (is_outdated() && lock_type == F_WRLCK && thd_sql_command(thd) != SQLCOM_TRUNCATE &&
      thd_sql_command(thd) != SQLCOM_REPAIR)
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  if (share->is_discarded() && !thd_tablespace_op(thd))
  {
    my_error(ER_TABLESPACE_DISCARDED, MYF(0), table->s->table_name.str);
    return HA_ERR_TABLESPACE_MISSING;
  }
  if (lock_type == F_WRLCK && !(table_flags() & HA_BINLOG_STMT_CAPABLE) &&
      thd_binlog_format(thd) == BINLOG_FORMAT_STMT && thd_binlog_filter_ok(thd) &&
      thd_sqlcom_can_generate_row_events(thd))
  {
    my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
             thd_tx_isolation(thd) == ISO_REPEATABLE_READ
                 ? " Inkstone is limited to row-logging with inkstone_snapshot_isolation, which locks no gaps."
                 : " Inkstone is limited to row-logging when transaction isolation level is"
                   " READ COMMITTED or READ UNCOMMITTED.");
    return HA_ERR_LOGGING_IMPOSSIBLE;
  }
  use_column_order();
  forget_pruned(table);
  is_change_noted= false;
  if (int failed= session->begin_statement())
    return failed;
  if (int failed= begin_own())
    return failed;
  /* Last: what fails here is not unlocked, and an export that goes on keeps the table's file as it
     is. */
  if (thd_sql_command(thd) == SQLCOM_FLUSH && lock_type == F_RDLCK)
    if (int failed= begin_export(thd))
      return failed;
  session->tables_in_use++;
  lock_type_is_write= lock_type == F_WRLCK;
  if (lock_type_is_write)
    lock= INK_LOCK_EXCLUSIVE;
  else if (lock == INK_LOCK_NONE && thd_tx_isolation(thd) == ISO_SERIALIZABLE &&
           thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    lock= INK_LOCK_SHARED;
  return 0;
}

int ha_inkstone::start_stmt(THD *thd, thr_lock_type lock_type)
{
  if (int failed= use_session(thd))
    return failed;
  if (is_outdated() && lock_type >= TL_FIRST_WRITE)
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  use_column_order();
  forget_pruned(table);
  session->auto_increment_rows= 0;
  is_change_noted= false;
  /* Tables that LOCK TABLES locked for reading serve consistent reads of each statement; temporary
     ones are never locked. */
  if (lock_type >= TL_FIRST_WRITE || table->s->tmp_table != NO_TMP_TABLE)
  {
    lock= INK_LOCK_EXCLUSIVE;
    lock_type_is_write= true;
  }
  else if (lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_NO_INSERT ||
           thd_sql_command(thd) != SQLCOM_SELECT)
  {
    if (lock == INK_LOCK_NONE)
      lock= INK_LOCK_SHARED;
  }
  else
  {
    lock= INK_LOCK_NONE;
    lock_type_is_write= false;
  }
  int failed= session->begin_statement();
  return failed ? failed : begin_own();
}

int ha_inkstone::begin_own()
{
  ink_error error;
  if (own || table->s->table_type != TABLE_TYPE_SEQUENCE)
    return 0;
  return ink_begin(database, INK_READ_COMMITTED, session->interrupt, &own, &error) ? failure(error)
                                                                                   : 0;
}

/* Commits a sequence's change. The log's order makes it durable before any commit that uses its
   number. */
int ha_inkstone::end_own(int failed)
{
  if (!own)
    return failed;
  ink_error error;
  close_cursor();
  if (!failed && ink_commit(own, INK_LAZY, &error))
    failed= failure(error);
  ink_transaction_free(own);
  own= nullptr;
  int begun= begin_own();
  return failed ? failed : begun;
}

int ha_inkstone::extra(enum ha_extra_function operation)
{
  if (int failed= use_session(ha_thd()))
    return failed;
  switch (operation)
  {
  case HA_EXTRA_IGNORE_DUP_KEY:
    ignores_duplicates= true;
    break;
  case HA_EXTRA_INSERT_WITH_UPDATE:
    ignores_duplicates= session->updates_duplicates= true;
    break;
  case HA_EXTRA_WRITE_CAN_REPLACE:
    ignores_duplicates= session->replaces_duplicates= true;
    break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    ignores_duplicates= session->updates_duplicates= false;
    break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    ignores_duplicates= session->replaces_duplicates= false;
    break;
  case HA_EXTRA_RESET_STATE:
    session->updates_duplicates= session->replaces_duplicates= false;
    break;
  default:
    break;
  }
  return 0;
}

int ha_inkstone::reset()
{
  suspend();
  delete bulk;
  bulk= nullptr;
  ignores_duplicates= semi_consistent= false;
  auto_increment_last= 0;
  wait= INK_WAIT;
  return 0;
}

void ha_inkstone::position(const uchar *record)
{
  if (hidden_row_id())
    memcpy(ref, row_id, ROW_ID_BYTES);
  else
    key_copy(ref, record, &table->key_info[table->s->primary_key], ref_length, false);
}

int ha_inkstone::cmp_ref(const uchar *one, const uchar *other)
{
  if (hidden_row_id())
    return memcmp(one, other, ROW_ID_BYTES);
  scratch.clear();
  other_key.clear();
  if (clustered.put_key(scratch, one, HA_WHOLE_KEY) ||
      clustered.put_key(other_key, other, HA_WHOLE_KEY))
    return memcmp(one, other, ref_length);
  size_t shared= MY_MIN(scratch.length(), other_key.length());
  int order= memcmp(scratch.data(), other_key.data(), shared);
  return order ? order : scratch.length() < other_key.length() ? -1
                         : scratch.length() > other_key.length() ? 1 : 0;
}

bool ha_inkstone::get_error_message(int error, String *text)
{
  if (session && error == HA_ERR_INKSTONE)
    text->append(session->message, strlen(session->message));
  return false;
}

void ha_inkstone::print_error(int error, myf flags)
{
  const char *name= table_share->table_name.str;
  /* What failed has been said, with the server's own error. */
  if (error == HA_ERR_INKSTONE && ha_thd()->is_error())
    return;
  if (error == HA_ERR_TABLE_NEEDS_UPGRADE && !is_outdated())
    my_printf_error(ER_TABLE_NEEDS_REBUILD,
                    "Table rebuild required: a key of this row is longer than those that the indexes of `%s`, which an"
                    " earlier version of Inkstone made, can have. Please do \"ALTER TABLE `%s` FORCE\"",
                    flags, name, name);
  else if (error == HA_ERR_TABLE_NEEDS_UPGRADE)
    my_printf_error(ER_TABLE_NEEDS_REBUILD,
                    "Table rebuild required: an earlier version of Inkstone sorted texts otherwise in the indexes of"
                    " `%s`. Please do \"ALTER TABLE `%s` FORCE\"; until then it can only be read, without them",
                    flags, name, name);
  else
    handler::print_error(error, flags);
}

/* The row that was read last is not wanted: its lock is given back, at read committed. */
void ha_inkstone::unlock_row()
{
  if (shown_unlocked)
  {
    shown_unlocked= false;
    return;
  }
  if (lock == INK_LOCK_NONE || !transaction())
    return;
  unlock_fetched();
  if (locked_key.length())
    ink_unlock_row(transaction(), share->clustered(), slice(locked_key), nullptr);
  locked_key.clear();
}
