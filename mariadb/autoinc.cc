/* SPDX-License-Identifier: GPL-2.0-only */
/* AUTO_INCREMENT, with the numbers that InnoDB gives (innodb_autoinc_lock_mode=1): a statement reserves as
   many values as the server asks for, explicit values raise the counter, and the counter is kept over
   restarts. */
#include "ha_inkstone.h"
#include <algorithm>

/* The least value above `current` that increment and offset allow, and `count - 1` steps further. */
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

void ha_inkstone::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong desired,
                                     ulonglong *first, ulonglong *reserved)
{
  const ulonglong max= table->next_number_field->get_max_int_value();
  auto_increment_step= increment;
  auto_increment_offset= offset;
  share->reserve_auto_increment([&](uint64 current) -> uint64 {
    ulonglong value= current;
    if (increment > 1 && increment <= ~value && value < max &&
        thd_sql_command(thd()) != SQLCOM_ALTER_TABLE)
    {
      ulonglong aligned= (value - 1 + increment - offset) / increment * increment + offset;
      if (aligned < max)
        value= aligned;
    }
    /* The server's first word on how many rows there will be is the one to trust. */
    if (!auto_increment_rows)
    {
      auto_increment_rows= desired ? desired : 1;
      set_if_bigger(*first, value);
    }
    else if (!auto_increment_last)
      set_if_bigger(*first, value);
    *reserved= auto_increment_rows;
    /* handler::update_auto_increment says that a value is too large. */
    auto_increment_last=
        *first > max ? 0 : next_value(*first, *reserved, increment, offset, max);
    return std::max<uint64>(current, auto_increment_last);
  });
}

/* The counter that a row's value asks for; 0: none (negative, or not the statement's table). */
uint64 ha_inkstone::next_after(const uchar *record)
{
  Field *field= table->found_next_number_field;
  if (!field)
    return 0;
  my_ptrdiff_t moved= record - table->record[0];
  field->move_field_offset(moved);
  longlong number= field->val_int();
  field->move_field_offset(-moved);
  ulonglong value= number;
  if (!(field->flags & UNSIGNED_FLAG) && number < 0)
    return 0;
  return value > field->get_max_int_value() || value == ~0ULL ? 0 : value + 1;
}

int ha_inkstone::note_auto_increment(const uchar *record)
{
  uint64 next= next_after(record);
  return next > 1 ? share->note_auto_increment(thd(), next) : 0;
}

/* A value that was not reserved raises the counter; also one that was refused as a duplicate, in the
   statements that go on then. */
void ha_inkstone::count_auto_increment(bool inserted)
{
  Field *field= table->next_number_field;
  if (!field)
    return;
  if (auto_increment_rows)
    auto_increment_rows--;
  if (!inserted)
  {
    switch (thd_sql_command(thd()))
    {
    case SQLCOM_LOAD:
    case SQLCOM_REPLACE:
    case SQLCOM_INSERT_SELECT:
    case SQLCOM_REPLACE_SELECT:
      break;
    default:
      return;
    }
  }
  longlong number= field->val_int();
  if (!(field->flags & UNSIGNED_FLAG) && number < 0)
    return;
  ulonglong value= number, max= field->get_max_int_value();
  if ((inserted && value < auto_increment_last) || value > max)
    return;
  share->raise_auto_increment(
      next_value(value, 1, auto_increment_step, auto_increment_offset, max));
}

/* An UPDATE that sets the column raises the counter, too. */
int ha_inkstone::update_auto_increment_of(const uchar *record)
{
  Field *field= table->found_next_number_field;
  if (!field || !bitmap_is_set(table->write_set, field->field_index))
    return 0;
  uint64 next= next_after(record);
  if (next <= 1)
    return 0;
  share->raise_auto_increment(next_value(next - 1, 1, auto_increment_step, auto_increment_offset,
                                         field->get_max_int_value()));
  return share->note_auto_increment(thd(), next);
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
