/* SPDX-License-Identifier: GPL-2.0-only */
/* Values of AUTO_INCREMENT, in memory and among the table's facts ("a" and "run", table/meta.h). */
#include "table/counter.h"
#include "table/meta.h"

/** Tells one run of the server from another. */
static ulonglong this_run()
{
  static const ulonglong began= my_hrtime().val;
  return began;
}

int Counter::read(THD *thd, const MetaTree &facts, const TABLE_SHARE *definition)
{
  std::lock_guard<std::mutex> hold(latch);
  std::vector<uchar> bytes;
  meta= facts;
  int failed= meta_get_number(thd, meta, INK_STR("a"), &next_value);
  set_if_bigger(next_value, 1);
  noted= next_value;
  remembered= 0;
  Field **field= definition->found_next_number_field;
  max= field ? (*field)->get_max_int_value() : ~0ULL;
  if (!failed)
    failed= meta_get(thd, meta, INK_STR("run"), &bytes);
  if (!failed && bytes.size() == 16 && mi_uint8korr(bytes.data()) == this_run())
    next_value= remembered= mi_uint8korr(bytes.data() + 8);
  is_lacking= !remembered && is_beyond_column();
  return failed;
}

/* The next open of the table in this run goes on behind what was reserved, and beyond the column's
   values. */
int Counter::remember(THD *thd)
{
  std::lock_guard<std::mutex> hold(latch);
  const bool is_read_again= !remembered && !is_beyond_column();
  if (next_value == (is_read_again ? noted : remembered))
    return 0;
  uchar bytes[16];
  mi_int8store(bytes, this_run());
  mi_int8store(bytes + 8, next_value);
  remembered= next_value;
  return meta_put(thd, meta, {{INK_STR("run"), {bytes, sizeof bytes}}}, INK_LAZY);
}

uint64 Counter::next()
{
  std::lock_guard<std::mutex> hold(latch);
  return next_value;
}

void Counter::both(uint64 *next, uint64 *noted_value)
{
  std::lock_guard<std::mutex> hold(latch);
  *next= next_value;
  *noted_value= noted;
}

void Counter::raise(uint64 next)
{
  std::lock_guard<std::mutex> hold(latch);
  set_if_bigger(next_value, next);
}

uint64 Counter::forget_reserved()
{
  std::lock_guard<std::mutex> hold(latch);
  return next_value= noted;
}

int Counter::note(THD *thd, uint64 next)
{
  std::lock_guard<std::mutex> hold(latch);
  if (next <= noted)
    return 0;
  if (int failed= meta_put_number(thd, meta, INK_STR("a"), next))
    return failed;
  noted= next;
  return 0;
}

int Counter::put(THD *thd, uint64 next)
{
  set_if_bigger(next, 1);
  if (int failed= meta_put_number(thd, meta, INK_STR("a"), next))
    return failed;
  next_value= noted= next;
  is_lacking= false;
  return 0;
}

int Counter::set(THD *thd, uint64 next)
{
  std::lock_guard<std::mutex> hold(latch);
  return put(thd, next);
}

bool Counter::lacks()
{
  std::lock_guard<std::mutex> hold(latch);
  return is_lacking;
}

int Counter::found(THD *thd, uint64 next)
{
  std::lock_guard<std::mutex> hold(latch);
  return is_lacking ? put(thd, next) : 0;
}

