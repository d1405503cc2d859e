/* SPDX-License-Identifier: GPL-2.0-only */
/* AUTO_INCREMENT, with the numbers that InnoDB gives (innodb_autoinc_lock_mode=1).

   A statement that takes numbers for an unknown number of rows holds the table's statement lock
   until it ends, so that its numbers follow each other; so does an UPDATE that raises the counter.
   The others only wait for it.

   A statement reserves as many values as the server asks for at first; explicit values raise the
   counter when their row is inserted. What is reserved and not used is lost, but for a restart:
   then the counter goes on behind the greatest value that a row was given. */
#include "handler/bulk.h"
#include "handler/ha_inkstone.h"
#include <algorithm>

/* The least value above `current` that increment and offset allow, and `count - 1` steps
   further. */
static ulonglong next_value(ulonglong current, ulonglong count, ulonglong step, ulonglong offset,
                            ulonglong max)
{
  const ulonglong none= ~0ULL;
  if (offset > step)
    offset= 0;
  if (current > max)
    return none;
  ulonglong block;
  if (__builtin_mul_overflow(count, step, &block))
    return none;
  ulonglong distance= current > offset ? current - offset : offset - current;
  ulonglong next;
  if (__builtin_add_overflow(distance - distance % step, offset, &next) ||
      __builtin_add_overflow(next, block, &next))
    return none;
  return next;
}

/* Whether the statement says itself which rows it inserts; also rows of a primary's log. */
static bool has_known_rows(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_INSERT:
  case SQLCOM_REPLACE:
  case SQLCOM_END:
    return true;
  default:
    return false;
  }
}

/* Calls `change` with the counter, under its latch, when it is the statement's turn; what it
   returns is the new counter. */
template <class Change> int ha_inkstone::change_auto_increment(Change change)
{
  ink_error error;
  if (has_known_rows(thd()) && share->change_auto_increment_unlocked(change))
    return 0;
  if (ink_lock_for_statement(transaction(), share->engine_table(), &error))
    return failure(error);
  share->change_auto_increment(change);
  return 0;
}

int ha_inkstone::raise_auto_increment(uint64 next)
{
  return change_auto_increment([next](uint64 current) { return std::max(current, next); });
}

void ha_inkstone::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong desired,
                                     ulonglong *first, ulonglong *reserved)
{
  const ulonglong max= table->next_number_field->get_max_int_value();
  const int failed= change_auto_increment([&](uint64 current) -> uint64 {
    ulonglong value= current;
    if (increment > 1 && increment <= ~value && value < max &&
        thd_sql_command(thd()) != SQLCOM_ALTER_TABLE)
    {
      ulonglong aligned= (value - 1 + increment - offset) / increment * increment + offset;
      if (aligned < max)
        value= aligned;
    }
    /* The server's first statement of how many rows there will be is the one that counts. */
    const bool goes_on= session->auto_increment_rows != 0;
    if (!goes_on)
      session->auto_increment_rows= desired ? desired : 1;
    if (!goes_on || !auto_increment_last)
      set_if_bigger(*first, value);
    if (*first > max)
    {
      /* handler::update_auto_increment says that the value is too large. */
      auto_increment_last= *reserved= 0;
      return current;
    }
    *reserved= session->auto_increment_rows;
    auto_increment_last= next_value(*first, *reserved, increment, offset, max);
    auto_increment_step= increment;
    auto_increment_offset= offset;
    if (auto_increment_last < *first)
    {
      *first= ~0ULL;
      return current;
    }
    return std::max<uint64>(current, auto_increment_last);
  });
  /* Then the statement's error is 1467, as in InnoDB, whatever was wrong: a deadlock, a KILL, or
     time that was up. */
  if (failed)
  {
    *first= ~0ULL;
    *reserved= 0;
  }
}

/* What the values of rows that are held back ask for counts before more are reserved. */
int ha_inkstone::insert_before_reserving()
{
  if (!bulk || next_insert_id < auto_inc_interval_for_cur_row.maximum() ||
      table->next_number_field->val_int())
    return 0;
  return bulk->flush();
}

/* Whether a value is none that is negative or beyond its column. */
bool ha_inkstone::can_be_counted(ulonglong value)
{
  Field *field= table->found_next_number_field;
  const bool negative= !(field->flags & UNSIGNED_FLAG) && static_cast<longlong>(value) < 0;
  return !negative && value <= field->get_max_int_value();
}

/* The counter that a value asks for; 0: none. */
uint64 ha_inkstone::next_after_value(ulonglong value)
{
  if (!can_be_counted(value))
    return 0;
  return value == ~0ULL ? value : value + 1;
}

/* What a row has in the column; 0 if that is negative. */
ulonglong ha_inkstone::auto_increment_of(const uchar *record)
{
  Field *field= table->found_next_number_field;
  const my_ptrdiff_t moved= record - table->record[0];
  field->move_field_offset(moved);
  const ulonglong value= field->val_uint();
  field->move_field_offset(-moved);
  return value;
}

int ha_inkstone::note_auto_increment(const uchar *record)
{
  if (!table->found_next_number_field)
    return 0;
  const uint64 next= next_after_value(auto_increment_of(record));
  return next > 1 ? share->note_auto_increment(thd(), next) : 0;
}

/* Whether a value that a duplicate refused raises the counter, too: in the statements that go on
   then. */
static bool counts_duplicates(THD *thd, const Session *session)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_LOAD:
    return session->updates_duplicates || session->replaces_duplicates;
  case SQLCOM_REPLACE:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
    return true;
  default:
    return false;
  }
}

/* A row was tried; one row less is to come. */
void ha_inkstone::count_auto_increment_row()
{
  if (table->next_number_field && session->auto_increment_rows)
    session->auto_increment_rows--;
}

/* The value of a row that was inserted, or that a duplicate refused, raises the counter, if it was
   not reserved. As in InnoDB a negative one counts as 0, which skips a value by the steps of the
   handler. */
int ha_inkstone::count_auto_increment(ulonglong value, bool inserted)
{
  if (inserted ? value < auto_increment_last : !counts_duplicates(thd(), session))
    return 0;
  /* Negative values are above that. (A replica has forgotten the field that it numbers by the end
     of a bulk insert.) */
  const ulonglong max= table->found_next_number_field->get_max_int_value();
  if (value > max || has_counter_of_altered())
    return 0;
  return raise_auto_increment(next_free(value));
}

/* An UPDATE that changes the column raises the counter, too. */
int ha_inkstone::update_auto_increment_of(const uchar *old_record, const uchar *new_record)
{
  Field *field= table->found_next_number_field;
  if (!field || !bitmap_is_set(table->write_set, field->field_index) ||
      !field->cmp_binary(field->ptr_in_record(old_record), field->ptr_in_record(new_record)))
    return 0;
  const ulonglong value= auto_increment_of(new_record);
  if (!value || !can_be_counted(value))
    return 0;
  const uint64 raised= next_free(value);
  if (int failed= raise_auto_increment(raised))
    return failed;
  /* InnoDB notes the next value as one in use: behind a restart it is skipped. */
  return share->note_auto_increment(thd(), raised == ~0ULL ? raised : raised + 1);
}

/* The value behind one that is in use, in the steps that the handler knows. */
ulonglong ha_inkstone::next_free(ulonglong used)
{
  return next_value(used, 1, auto_increment_step, auto_increment_offset,
                    table->found_next_number_field->get_max_int_value());
}

int ha_inkstone::reset_auto_increment(ulonglong value)
{
  return share->set_auto_increment(thd(), value);
}

void ha_inkstone::update_create_info(HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_AUTO))
  {
    this->info(HA_STATUS_AUTO);
    info->auto_increment_value= stats.auto_increment_value;
  }
}
