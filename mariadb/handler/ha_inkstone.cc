/* SPDX-License-Identifier: GPL-2.0-only */
/* Opening and locking a table, and what the server may expect of it. */
#include "handler/ha_inkstone.h"
#include "handler/bulk.h"

/* The server has these for its engines, and declares them nowhere. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);

ha_inkstone::ha_inkstone(handlerton *hton, TABLE_SHARE *table_arg)
    : handler(hton, table_arg), access(table), scan(access, codec), auto_increment(access),
      checks_references(false), ignores_duplicates(false), fills_copy(false), is_change_noted(false), use_end_range(false)
{
}

/* Here BulkInsert is known. */
ha_inkstone::~ha_inkstone()= default;

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
    if (!(access.share= get_share()))
      return HA_ERR_OUT_OF_MEM;
    if (int failed= access.share->open(ha_thd(), name, table->s))
      return failed;
    codec.init(table, access.share->key_room());
    codec.use_layout(table, access.share->row_layout(), access.share->opened());
    if (is_outdated())
      hide_outdated_indexes();
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
  /* An UPDATE of the primary key must not meet its own rows again. */
  key_used_on_scan= table->s->primary_key;
  ref_length= codec.hidden_row_id() ? ROW_ID_BYTES
                              : table->key_info[table->s->primary_key].key_length;
  stats.block_size= 16384;
  if (int failed= find_auto_increment())
    return failed;
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
}

/* Statements find their rows without the codec.indexes. CHECK TABLE asks for upgrades only where
   the
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
  scan.close();
  access.own.reset();
  return 0;
}

handler *ha_inkstone::clone(const char *name, MEM_ROOT *mem_root)
{
  ha_inkstone *copy= static_cast<ha_inkstone *>(handler::clone(name, mem_root));
  if (copy)
  {
    copy->access.session= access.session;
    copy->access.lock= access.lock;
    copy->access.wait= access.wait;
    copy->access.writes= access.writes;
  }
  return copy;
}

TableShare *ha_inkstone::get_share()
{
  lock_shared_ha_data();
  TableShare *found= static_cast<TableShare *>(get_ha_share_ptr());
  std::unique_ptr<TableShare> made;
  if (!found)
    made.reset(new (std::nothrow) TableShare());
  if (made)
    /* The server's share of the table owns it from now on. */
    set_ha_share_ptr(found= made.release());
  unlock_shared_ha_data();
  return found;
}

int ha_inkstone::use_session(THD *thd)
{
  access.session= session_of(thd);
  return access.session ? 0 : HA_ERR_OUT_OF_MEM;
}

/* Which reads lock is decided as InnoDB does it: everything but a plain SELECT does, so that
   statements that change data see the newest rows. external_lock makes the locks of written tables
   exclusive. */
THR_LOCK_DATA **ha_inkstone::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type)
{
  const int command= thd_sql_command(thd);
  if (lock_type == TL_IGNORE || command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_SEQUENCE)
    return to;
  access.wait= lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED ? INK_SKIP_LOCKED
                                                                             : INK_WAIT;
  const bool locks_tables= thd_in_lock_tables(thd);
  const bool plain_read= lock_type == TL_READ || lock_type == TL_READ_NO_INSERT;
  if (command == SQLCOM_FLUSH && lock_type == TL_READ_NO_INSERT)
    access.lock= INK_LOCK_NONE;
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
    access.lock= consistent ? INK_LOCK_NONE : INK_LOCK_SHARED;
  }
  else
    access.lock= INK_LOCK_NONE;
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

int ha_inkstone::unlock(THD *thd)
{
  scan.suspend();
  end_export();
  access.own.reset();
  if (access.session->tables_in_use && --access.session->tables_in_use)
    return 0;
  /* What was not registered as a statement (a handler's read) ends here. */
  if (!thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    return access.session->commit();
  return access.session->end_statement();
}

/* Why a statement is not to have the table; 0: it may. */
int ha_inkstone::refuse_lock(THD *thd, int lock_type)
{
  if (is_outdated() && lock_type == F_WRLCK && thd_sql_command(thd) != SQLCOM_TRUNCATE &&
      thd_sql_command(thd) != SQLCOM_REPAIR)
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  /* There is nothing to be exported, nor to be held still. */
  if (thd_sql_command(thd) == SQLCOM_FLUSH && lock_type == F_RDLCK)
    if (int refused= access.refuse_discarded())
      return refused;
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
  return 0;
}

/* What is forgotten of the statement before. TRUNCATE and IMPORT TABLESPACE exchange what this
   handler has open. */
void ha_inkstone::begin_statement()
{
  codec.use_layout(table, access.share->row_layout(), access.share->opened());
  forget_pruned(table);
  is_change_noted= false;
}

int ha_inkstone::external_lock(THD *thd, int lock_type)
{
  if (int failed= use_session(thd))
    return failed;
  if (lock_type == F_UNLCK)
    return unlock(thd);
  if (int refused= refuse_lock(thd, lock_type))
    return refused;
  if (lock_type == F_RDLCK)
    recount_altered();
  begin_statement();
  if (int failed= lock_type == F_WRLCK ? prepare_references(thd) : 0)
    return failed;
  if (int failed= access.session->begin_statement(access.share->is_temporary()))
    return failed;
  if (int failed= begin_own())
    return failed;
  /* Last: what fails here is not unlocked, and an export that goes on keeps the table's file as it
     is. */
  if (thd_sql_command(thd) == SQLCOM_FLUSH && lock_type == F_RDLCK)
    if (int failed= begin_export(thd))
      return failed;
  access.session->tables_in_use++;
  access.writes= lock_type == F_WRLCK;
  if (access.writes)
    access.lock= INK_LOCK_EXCLUSIVE;
  else if (access.lock == INK_LOCK_NONE && thd_tx_isolation(thd) == ISO_SERIALIZABLE &&
           thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    access.lock= INK_LOCK_SHARED;
  return 0;
}

int ha_inkstone::start_stmt(THD *thd, thr_lock_type lock_type)
{
  if (int failed= use_session(thd))
    return failed;
  if (is_outdated() && lock_type >= TL_FIRST_WRITE)
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  begin_statement();
  if (int failed= lock_type >= TL_FIRST_WRITE ? prepare_references(thd) : 0)
    return failed;
  access.session->auto_increment_rows= 0;
  /* Tables that LOCK TABLES locked for reading serve consistent reads of each statement; temporary
     ones are never locked. */
  if (lock_type >= TL_FIRST_WRITE || table->s->tmp_table != NO_TMP_TABLE)
  {
    access.lock= INK_LOCK_EXCLUSIVE;
    access.writes= true;
  }
  else if (lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_NO_INSERT ||
           thd_sql_command(thd) != SQLCOM_SELECT)
  {
    if (access.lock == INK_LOCK_NONE)
      access.lock= INK_LOCK_SHARED;
  }
  else
  {
    access.lock= INK_LOCK_NONE;
    access.writes= false;
  }
  int failed= access.session->begin_statement(access.share->is_temporary());
  return failed ? failed : begin_own();
}

int ha_inkstone::begin_own()
{
  ink_error error;
  if (access.own || table->s->table_type != TABLE_TYPE_SEQUENCE)
    return 0;
  const ink_interrupt *interrupt= access.session->interrupt.get();
  return begin(access.share->home(), INK_READ_COMMITTED, interrupt, &access.own, &error) ? failure(error) : 0;
}

int ha_inkstone::begin_unlocked()
{
  int failed= use_session(ha_thd());
  return failed ? failed : begin_own();
}

/* Commits a sequence's change. */
int ha_inkstone::end_own(int failed)
{
  if (!access.own)
    return failed;
  ink_error error;
  scan.close();
  if (!failed && ink_commit(access.own.get(), access.session->durability(), &error))
    failed= failure(error);
  access.own.reset();
  int begun= begin_own();
  return failed ? failed : begun;
}

/* The server detaches temporary tables, of which it knows none here, also while it reads its
   statistics in a transaction of their own, beside that of the statement: the statement's session
   stays this table's. */
int ha_inkstone::extra(enum ha_extra_function operation)
{
  if (operation == HA_EXTRA_DETACH_CHILDREN)
    return 0;
  if (int failed= use_session(ha_thd()))
    return failed;
  switch (operation)
  {
  case HA_EXTRA_IGNORE_DUP_KEY:
    ignores_duplicates= true;
    break;
  case HA_EXTRA_INSERT_WITH_UPDATE:
    ignores_duplicates= access.session->updates_duplicates= true;
    break;
  case HA_EXTRA_WRITE_CAN_REPLACE:
    ignores_duplicates= access.session->replaces_duplicates= true;
    break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    ignores_duplicates= access.session->updates_duplicates= false;
    break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    ignores_duplicates= access.session->replaces_duplicates= false;
    break;
  case HA_EXTRA_BEGIN_COPY:
    fills_copy= true;
    break;
  case HA_EXTRA_END_COPY:
  case HA_EXTRA_ABORT_COPY:
    fills_copy= false;
    break;
  case HA_EXTRA_RESET_STATE:
    access.session->updates_duplicates= access.session->replaces_duplicates= false;
    break;
  default:
    break;
  }
  return 0;
}

int ha_inkstone::reset()
{
  scan.suspend();
  bulk.reset();
  ignores_duplicates= fills_copy= false;
  scan.want_semi_consistent(false);
  auto_increment.reset();
  access.own.reset();
  access.wait= INK_WAIT;
  return 0;
}

void ha_inkstone::position(const uchar *record)
{
  if (codec.hidden_row_id())
    memcpy(ref, buffers.row_id, ROW_ID_BYTES);
  else
    key_copy(ref, record, &table->key_info[table->s->primary_key], ref_length, false);
}

int ha_inkstone::cmp_ref(const uchar *one, const uchar *other)
{
  if (codec.hidden_row_id())
    return memcmp(one, other, ROW_ID_BYTES);
  int order;
  if (codec.clustered.compare_keys(one, other, place, other_place, &order))
    return memcmp(one, other, ref_length);
  return order;
}

bool ha_inkstone::get_error_message(int error, String *text)
{
  /* Also of a table that could not be opened, whose handler has no session yet. */
  const bool of_foreign_key= error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_ROW_IS_REFERENCED ||
                             error == HA_ERR_FK_DEPTH_EXCEEDED;
  const Session *session= error == HA_ERR_INKSTONE || of_foreign_key ? session_of(ha_thd()) : nullptr;
  if (session && of_foreign_key)
    text->append(session->foreign_key_error.c_str(), session->foreign_key_error.size());
  else if (session)
    text->append(session->message, strlen(session->message));
  return false;
}

void ha_inkstone::print_error(int error, myf flags)
{
  const char *name= table_share->table_name.str;
  /* What failed has been said, with the server's own error. */
  if (error == HA_ERR_INKSTONE && ha_thd()->is_error())
    return;
  /* Nothing useful can follow in the transaction. A statement that is killed instead fails alone:
     the server does not come here. */
  if (error == HA_ERR_RECORD_CHANGED)
    ha_thd()->mark_transaction_to_rollback(true);
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
  if (scan.shows_unlocked())
  {
    scan.give_up_unlocked();
    return;
  }
  if (access.lock == INK_LOCK_NONE || !transaction())
    return;
  scan.unlock_fetched();
  if (locked_key.length())
    ink_unlock_row(transaction(), access.share->clustered(), slice(locked_key), nullptr);
  locked_key.clear();
}
