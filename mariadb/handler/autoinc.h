/* SPDX-License-Identifier: GPL-2.0-only */
/* AUTO_INCREMENT, with the numbers that InnoDB gives (innodb_autoinc_lock_mode=1).

   A statement that takes numbers for an unknown number of rows holds the table's statement lock
   until it ends, so that its numbers follow each other; so does an UPDATE that raises the counter.
   The others only wait for it.

   A statement reserves as many values as the server asks for at first; explicit values raise the
   counter when their row is inserted. What is reserved and not used is lost, but for a restart:
   then the counter goes on behind the greatest value that a row was given. */
#ifndef INKSTONE_AUTOINC_H
#define INKSTONE_AUTOINC_H

#include "handler/access.h"

class AutoIncrement
{
public:
  explicit AutoIncrement(const Access &access) : access(access), last(0), step(1), offset(0) {}

  /** The statement has ended. */
  void reset() { last= 0; }
  /** handler::get_auto_increment. */
  void reserve(ulonglong new_offset, ulonglong increment, ulonglong desired, ulonglong *first,
               ulonglong *reserved);

  /** What a row has in the column; 0 if that is negative. */
  ulonglong value_of(const uchar *record) const;
  /** The counter that a value asks for; 0: none. */
  uint64 next_after(ulonglong value) const;
  /** The value behind one that is in use, in the steps that the statement knows. */
  ulonglong next_free(ulonglong used) const;

  /** Before a row is inserted: notes that its value is in use. */
  int note(const uchar *record) const;
  /** A row was tried; one row less is to come. */
  void count_row() const;
  /** The value of a row that was inserted, or that a duplicate refused, raises the counter, if it
      was not reserved. */
  int count(ulonglong value, bool inserted) const;
  /** An UPDATE that changes the column raises the counter, too. */
  int count_update(const uchar *old_record, const uchar *new_record) const;

private:
  Counter &counter() const { return access.share->auto_increment(); }
  template <class Change> int change(Change change) const;
  int raise(uint64 next) const;
  bool can_be_counted(ulonglong value) const;

  const Access &access;
  /** Of the statement: the values reserved last, as in handler::auto_inc_interval. */
  ulonglong last, step, offset;
};

#endif
