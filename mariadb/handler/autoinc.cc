/* SPDX-License-Identifier: GPL-2.0-only */
/* What statements do to the counter of AUTO_INCREMENT. */
#include "handler/autoinc.h"
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
template <class Change> int AutoIncrement::change(Change change) const
{
  ink_error error;
  const ink_table *table= access.share->engine_table();
  if (has_known_rows(access.thd()) && counter().change_unlocked(table, change))
    return 0;
  if (ink_lock_for_statement(access.of_statement(), table, &error))
    return access.failure(error);
  counter().change(change);
  return 0;
}

int AutoIncrement::raise(uint64 next) const
{
  return change([next](uint64 current) { return std::max(current, next); });
}

void AutoIncrement::reserve(ulonglong new_offset, ulonglong increment, ulonglong desired,
                            ulonglong *first, ulonglong *reserved)
{
  const ulonglong max= access.table->next_number_field->get_max_int_value();
  const int failed= change([&](uint64 current) -> uint64 {
    ulonglong value= current;
    if (increment > 1 && increment <= ~value && value < max &&
        thd_sql_command(access.thd()) != SQLCOM_ALTER_TABLE)
    {
      ulonglong aligned= (value - 1 + increment - new_offset) / increment * increment + new_offset;
      if (aligned < max)
        value= aligned;
    }
    /* The server's first statement of how many rows there will be is the one that counts. */
    const bool goes_on= access.session->auto_increment_rows != 0;
    if (!goes_on)
      access.session->auto_increment_rows= desired ? desired : 1;
    if (!goes_on || !last)
      set_if_bigger(*first, value);
    if (*first > max)
    {
      /* handler::update_auto_increment says that the value is too large. */
      last= *reserved= 0;
      return current;
    }
    *reserved= access.session->auto_increment_rows;
    last= next_value(*first, *reserved, increment, new_offset, max);
    step= increment;
    offset= new_offset;
    if (last < *first)
    {
      *first= ~0ULL;
      return current;
    }
    return std::max<uint64>(current, last);
  });
  /* Then the statement's error is 1467, as in InnoDB, whatever was wrong: a deadlock, a KILL, or
     time that was up. */
  if (failed)
  {
    *first= ~0ULL;
    *reserved= 0;
  }
}

/* Whether a value is none that is negative or beyond its column. */
bool AutoIncrement::can_be_counted(ulonglong value) const
{
  Field *field= access.table->found_next_number_field;
  const bool negative= !(field->flags & UNSIGNED_FLAG) && static_cast<longlong>(value) < 0;
  return !negative && value <= field->get_max_int_value();
}

uint64 AutoIncrement::next_after(ulonglong value) const
{
  if (!can_be_counted(value))
    return 0;
  return value == ~0ULL ? value : value + 1;
}

ulonglong AutoIncrement::value_of(const uchar *record) const
{
  Field *field= access.table->found_next_number_field;
  const my_ptrdiff_t moved= record - access.table->record[0];
  field->move_field_offset(moved);
  const ulonglong value= field->val_uint();
  field->move_field_offset(-moved);
  return value;
}

int AutoIncrement::note(const uchar *record) const
{
  if (!access.table->found_next_number_field)
    return 0;
  const uint64 next= next_after(value_of(record));
  return next > 1 ? counter().note(access.thd(), next) : 0;
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

void AutoIncrement::count_row() const
{
  if (access.table->next_number_field && access.session->auto_increment_rows)
    access.session->auto_increment_rows--;
}

/* As in InnoDB a negative one counts as 0, which skips a value by the steps of the
   handler. */
int AutoIncrement::count(ulonglong value, bool inserted) const
{
  if (inserted ? value < last : !counts_duplicates(access.thd(), access.session))
    return 0;
  /* Negative values are above that. (A replica has forgotten the field that it numbers by the end
     of a bulk insert.) */
  const ulonglong max= access.table->found_next_number_field->get_max_int_value();
  if (value > max || access.session->altered.has_handed_over(access.thd(), access.share->name))
    return 0;
  return raise(next_free(value));
}

int AutoIncrement::count_update(const uchar *old_record, const uchar *new_record) const
{
  Field *field= access.table->found_next_number_field;
  if (!field || !bitmap_is_set(access.table->write_set, field->field_index) ||
      !field->cmp_binary(field->ptr_in_record(old_record), field->ptr_in_record(new_record)))
    return 0;
  const ulonglong value= value_of(new_record);
  if (!value || !can_be_counted(value))
    return 0;
  const uint64 raised= next_free(value);
  if (int failed= raise(raised))
    return failed;
  /* InnoDB notes the next value as one in use: behind a restart it is skipped. */
  return counter().note(access.thd(), raised == ~0ULL ? raised : raised + 1);
}

ulonglong AutoIncrement::next_free(ulonglong used) const
{
  return next_value(used, 1, step, offset,
                    access.table->found_next_number_field->get_max_int_value());
}

