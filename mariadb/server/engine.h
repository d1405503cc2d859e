/* SPDX-License-Identifier: GPL-2.0-only */
/* What there is one of: the open database, the handlerton, and how errors of the engine become
   errors of the server. */
#ifndef INKSTONE_ENGINE_H
#define INKSTONE_ENGINE_H

#include "common.h"
#include <string>
#include <vector>

/** The open database, which is kept; nullptr before the plugin is initialised and after it is shut
    down. */
extern ink_database *database;
extern handlerton *inkstone_hton;

/** Errors of the engine that the server has no number for; the text is in the session. */
static const int HA_ERR_INKSTONE= HA_ERR_LAST + 1;

/** The server's number for an error. Marks the transaction for rollback where the engine has rolled
    it back, and notes the text for handler::get_error_message. `thd` may be nullptr. */
int handler_error(THD *thd, const ink_error &error);

/** The name of a table in the engine: the last two parts of the server's path, "db/t". */
struct TableName
{
  explicit TableName(const char *path);
  ink_slice slice() const { return ink_slice{reinterpret_cast<const uint8_t *>(start), length}; }
  std::string text() const { return std::string(start, length); }
  const char *start;
  size_t length;
};

inline ink_slice slice_of(const LEX_CSTRING &name)
{
  return ink_slice{reinterpret_cast<const uint8_t *>(name.str), name.length};
}

inline std::string text_of(ink_slice bytes)
{
  return std::string(reinterpret_cast<const char *>(bytes.data), bytes.len);
}

inline bool same_bytes(ink_slice one, ink_slice other)
{
  return one.len == other.len && (!one.len || !memcmp(one.data, other.data, one.len));
}

inline ink_slice slice_of(const std::vector<uchar> &bytes)
{
  return ink_slice{bytes.data(), bytes.size()};
}

inline ink_slice slice_of(const std::string &name)
{
  return ink_slice{reinterpret_cast<const uint8_t *>(name.data()), name.size()};
}

#endif
