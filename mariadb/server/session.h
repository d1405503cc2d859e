/* SPDX-License-Identifier: GPL-2.0-only */
/* What a connection has in the engine: its transaction (server/transaction.h), and how to interrupt
   it. Kept in the server's ha_data, never by thread: commit_ordered may run in another one. */
#ifndef INKSTONE_SESSION_H
#define INKSTONE_SESSION_H

#include "server/transaction.h"
#include <set>
#include <string>
#include <vector>

/** The counters of AUTO_INCREMENT of a table that a statement alters, of each partition (its name;
    else empty): what it gives next, and what of that is noted. */
struct AlteredCounters
{
  struct Counter
  {
    std::string partition;
    uint64 next, noted;
    /** The new table does not get what was only reserved. */
    bool forgets_reserved;
    /** The new table has got it: rows that are copied into it count no more. */
    bool handed_over;
  };
  query_id_t query;
  std::vector<Counter> counters;

  /** Whether rows of this table are copies whose table has its counter already. (One that a row was
      moved into from another partition may be less than that row's value.) */
  bool has_handed_over(THD *thd, const std::string &table) const;
};

/** Why a transaction is prepared: for a commit of the server in two phases, or by XA PREPARE. */
enum class Prepared
{
  not_yet,
  by_server,
  by_user
};

/** A row that others follow: the engine's name of its table, and whether it is updated, not
    deleted. */
struct FollowedRow
{
  std::string table;
  bool is_updated;
};

struct Session
{
  explicit Session(THD *thd);

  /** Begins the part of the transaction for temporary tables or for others if it has not begun, and
      the statement in it if none runs; registers both with the server. */
  int begin_statement(bool is_temporary);
  /** Commits the transaction: its first part if a binary log orders commits, else whole. */
  int commit();
  /** How durable a commit of the statement is made, as one of enum ink_durability. */
  uint32_t durability() const;
  void commit_ordered();
  int rollback();
  int end_statement();
  int rollback_statement();
  int prepare(const XID &xid);
  /** The kill of an earlier statement does not end this one's waits. */
  void forget_old_kill();
  /** Takes the snapshot now, at repeatable read. */
  int take_snapshot();
  /** Whether the statement is an ALTER that InnoDB does in place. */
  bool is_altered_in_place_by_innodb() const { return altered.query == thd->query_id; }
  /** The transaction has changed rows of this table. */
  void note_change(const std::string &table);
  /** It goes to change a row. InnoDB marks the old one first, and has changed something from then
      on, whatever becomes of the statement. */
  void note_attempt() { has_tried= true; }

  THD *thd;
  const OwnedInterrupt interrupt;
  TransactionParts transaction;
  /** The level at which it was begun, as one of enum ink_isolation. */
  uint32_t begun_at;
  /** Tables that the current statement has locked. */
  uint tables_in_use;
  /** Rows that the statement is still expected to insert, as the server said when the first value
      of AUTO_INCREMENT was reserved; of all its tables, triggers' with them. */
  ulonglong auto_increment_rows;
  /** Of the last ALTER that InnoDB does in place, and this engine perhaps by copying. */
  AlteredCounters altered;
  /** The server goes on when a duplicate refuses a row: it updates the other one, or replaces
      it. */
  bool updates_duplicates, replaces_duplicates;
  /** The index that refused a row last; MAX_KEY: none has. The server asks any partition for it,
      not the one that refused. */
  uint duplicate_index;
  /** The foreign key that refused a row last, in words; of a duplicate in a child's unique index,
      that index and the child. */
  std::string foreign_key_error, refusing_index, refusing_child;
  /** The statement's row, the child that follows it, that one's child, as far as it has come. */
  std::vector<FollowedRow> followed;
  /** The table that the server has asked last for what its definition does not say, and in which
      statement: an ALTER's. */
  query_id_t described_by;
  std::string described;
  /** The foreign keys that an ALTER adds: rows of its copy are looked at by these alone. */
  query_id_t adds_foreign_keys;
  std::set<std::string> added_foreign_keys;
  /** commit_ordered was called, commit is to wait. */
  bool ordered;
  /** If it is, durably. */
  Prepared prepared;
  /** Why commit_ordered, which cannot fail, did fail. */
  ink_error ordered_error;
  /** The last error without a number of the server's. */
  char message[sizeof(ink_error)];

private:
  /** Tables that the transaction has changed, and when it began. */
  std::set<std::string> changed;
  time_t begun;
  /** It has changed something, if only for a while. */
  bool has_tried;

  int begin_if_none(bool is_temporary);
  int commit_kept();
  bool leave_to_next_start();
  void end();
};

/** Whether what the connection's statements have read is locked with the gaps between, so that they
    can be replayed in the order of commits, and no other transaction writes where they have
    looked. */
bool locks_gaps(THD *thd);

/** Gives transactions back that a shutdown has not rolled back. The database is closed. */
void give_back_left_transactions();

/** The connection's session, made on first use; nullptr: out of memory. */
Session *session_of(THD *thd);

#endif
