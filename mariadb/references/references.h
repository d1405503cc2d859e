/* SPDX-License-Identifier: GPL-2.0-only */
/* The foreign keys of an opened table, and those that refer to it: how rows of one table are found
   by rows of the other.

   Columns of both sides have the same types: the bytes of a value in one table's key are those in
   the other's, but for what says whether it is NULL, and the order of the index. */
#ifndef INKSTONE_REFERENCES_H
#define INKSTONE_REFERENCES_H

#include "references/definition.h"
#include "table/foreign_key.h"

/** A foreign key, seen from one of its tables, which is open. */
class Reference
{
public:
  Reference(const ForeignKey &foreign_key, bool of_parent)
      : key(foreign_key), is_parent(of_parent), own_index(-1), other_index(-1), bound(false)
  {
  }

  /** Finds the indexes of both sides. HA_ERR_NO_SUCH_TABLE: the other table is not there, or is
      another one; HA_ERR_WRONG_INDEX: its index is not there. `by_age`: indexes of the open table. */
  int bind(THD *thd, const TABLE *own, const std::vector<uint> &by_age);
  /** Finds the index of the open table alone. False: there is none. */
  bool find_own(const TABLE *own, const std::vector<uint> &by_age);
  bool is_bound() const { return bound; }
  /** Whether the row has a NULL in the columns: it refers to none, and none to it. */
  bool has_null(const TableCodec &own, const uchar *record) const;
  /** Whether two rows differ in the columns, be it in letters that compare equal, as in InnoDB. */
  bool differ(const TableCodec &own, const uchar *one, const uchar *other) const;
  /** Appends what keys of the other table's index begin with, of rows that belong to this one.
      True: out of memory. */
  bool put_image(Buffer &out, const TableCodec &own, const uchar *record) const;
  /** Whether an image has all parts of a unique index: one row at most has it. */
  bool is_point() const;

  const ForeignKey key;
  /** Whether the open table is the parent. */
  const bool is_parent;
  int own_index, other_index;
  std::unique_ptr<Definition> other;

private:
  const std::vector<std::string> &own_columns() const { return is_parent ? key.parent_columns : key.columns; }

  bool bound;
};

/** Those of one open table. */
class References
{
public:
  References() : version(0), known(false) {}

  /** Looks them up again, if a table was defined anew since. */
  int refresh(THD *thd, const std::string &table);
  /** No table was defined anew since. */
  bool are_fresh() const;
  bool is_child() const { return !to_parents.empty(); }
  bool is_parent() const { return !to_children.empty(); }
  std::vector<std::unique_ptr<Reference>> to_parents, to_children;

private:
  uint64 version;
  bool known;
};

/** Whether a row of a tree has a key that begins with an image; it is locked, and where there is
    none the gap is, as the transaction's isolation wants it. */
int find_by_image(THD *thd, ink_transaction *transaction, const Reference &reference, const Buffer &image,
                  bool *found);

#endif
