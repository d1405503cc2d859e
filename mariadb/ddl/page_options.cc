/* SPDX-License-Identifier: GPL-2.0-only */
/* How the pages of a table are kept.

   A table is what its file is: what the definition says counts when the file is made. An ALTER that
   does not name it, TRUNCATE and CREATE .. LIKE make a file like the one that is there, whatever
   the server's variables say by then. */
#include "ddl/page_options.h"
#include "ddl/partitions.h"
#include "handler/ha_inkstone.h"
#include "server/variables.h"
#include "create_options.h"
#include <algorithm>

/* Values of options, with the server's definitions of them below. */
enum { PLACEMENT_DEFAULT, PLACEMENT_IN_PLACE, PLACEMENT_PLACED };
enum { COMPRESSED_DEFAULT, COMPRESSED_NO_FIRST, COMPRESSED_YES_FIRST= 4 };

/** The server fills it from a definition. */
struct ha_table_option_struct
{
  uint page_placement;
  uint page_compressed;
  ulonglong page_compression_level;
};

/* Not HA_TOPTION_BOOL: that would not tell what is off from what is not said. */
ha_create_table_option inkstone_table_options[]= {
    HA_TOPTION_ENUM("PAGE_PLACEMENT", page_placement, "default,in_place,placed", PLACEMENT_DEFAULT),
    HA_TOPTION_ENUM("PAGE_COMPRESSED", page_compressed, "default,0,no,off,1,yes,on", COMPRESSED_DEFAULT),
    HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 19, 1), HA_TOPTION_END};

bool is_page_option(const LEX_CSTRING &name)
{
  for (const ha_create_table_option *option= inkstone_table_options; option->name; option++)
    if (!my_strcasecmp(system_charset_info, option->name, name.str))
      return true;
  return false;
}

/* As in InnoDB a block size asks for compression, but beside a format that has none. */
static bool is_compressed_format(row_type format, ulong key_block_size)
{
  return format == ROW_TYPE_COMPRESSED ||
         (key_block_size && (format == ROW_TYPE_DEFAULT || format == ROW_TYPE_NOT_USED));
}

static uint placement_in(const HA_CREATE_INFO *info)
{
  return info->option_struct ? info->option_struct->page_placement : uint(PLACEMENT_DEFAULT);
}

static bool says_compressed(const HA_CREATE_INFO *info)
{
  return info->option_struct && info->option_struct->page_compressed >= COMPRESSED_YES_FIRST;
}

static bool says_not_compressed(const HA_CREATE_INFO *info)
{
  return info->option_struct && info->option_struct->page_compressed != COMPRESSED_DEFAULT &&
         !says_compressed(info);
}

/* 0: none is said. */
static ulonglong level_in(const HA_CREATE_INFO *info)
{
  return info->option_struct ? info->option_struct->page_compression_level : 0;
}

const char *page_contradiction(const HA_CREATE_INFO *info)
{
  const bool compressed= is_compressed_format(info->row_type, info->key_block_size);
  if (compressed && says_not_compressed(info))
    return "PAGE_COMPRESSED=0 with ROW_FORMAT=COMPRESSED or KEY_BLOCK_SIZE";
  if (level_in(info) && !says_compressed(info))
    return "PAGE_COMPRESSION_LEVEL without PAGE_COMPRESSED=1";
  if (placement_in(info) != PLACEMENT_IN_PLACE)
    return nullptr;
  if (says_compressed(info))
    return "PAGE_PLACEMENT=in_place with PAGE_COMPRESSED=1";
  return compressed ? "PAGE_PLACEMENT=in_place with ROW_FORMAT=COMPRESSED or KEY_BLOCK_SIZE" : nullptr;
}

static bool add_option(void *options, ink_slice name, ink_slice value)
{
  static_cast<PageOptions *>(options)->emplace_back(text_of(name), text_of(value));
  return true;
}

PageOptions page_options_of(const ink_table *table)
{
  PageOptions options;
  ink_table_options(table, add_option, &options);
  return options;
}

static bool note_compression(void *compressed, ink_slice name, ink_slice value)
{
  if (!same_bytes(name, INK_STR("page_compression")))
    return true;
  *static_cast<bool *>(compressed)= !same_bytes(value, INK_STR("none"));
  return false;
}

bool has_compressed_pages(const ink_table *table)
{
  bool compressed= false;
  ink_table_options(table, note_compression, &compressed);
  return compressed;
}

/* What is shown of an open table: whatever its definition asked for. */
enum row_type ha_inkstone::get_row_type() const
{
  return has_compressed_pages(access.share->engine_table()) ? ROW_TYPE_COMPRESSED : ROW_TYPE_DYNAMIC;
}

/* What a definition says. */
static PageOptions options_in(const HA_CREATE_INFO *info)
{
  PageOptions options;
  if (placement_in(info) != PLACEMENT_DEFAULT)
    options.emplace_back("page_placement",
                         placement_in(info) == PLACEMENT_PLACED ? "placed" : "in_place");
  if (level_in(info))
  {
    options.emplace_back("page_compression", "zstd");
    options.emplace_back("page_compression_level", std::to_string(level_in(info)));
  }
  else if (is_compressed_format(info->row_type, info->key_block_size))
    options.emplace_back("page_compression", "lz4");
  else if (says_compressed(info))
    options.emplace_back("page_compression", compression_of_pages());
  else if (says_not_compressed(info))
    options.emplace_back("page_compression", "none");
  return options;
}

/* Whether the statement itself, not the definition that it alters, says something of pages. */
static bool names_pages(THD *thd, const TABLE_SHARE *altered, const HA_CREATE_INFO *info)
{
  /* The parser begins a list for ALTER alone: that of another statement is of one before it. */
  const bool has_list= thd_sql_command(thd) == SQLCOM_ALTER_TABLE;
  for (const engine_option_value *option= has_list ? thd->lex->create_info.option_list : nullptr; option;
       option= option->next)
    if (is_page_option(option->name))
      return true;
  return is_compressed_format(info->row_type, info->key_block_size) !=
         is_compressed_format(altered->row_type, altered->key_block_size);
}

bool alters_pages(THD *thd, const TABLE_SHARE *altered, const HA_CREATE_INFO *info, const ink_table *table)
{
  if (!names_pages(thd, altered, info))
    return false;
  const PageOptions wanted= options_in(info), has= page_options_of(table);
  bool says_where= false;
  for (const auto &option : wanted)
  {
    if (std::find(has.begin(), has.end(), option) == has.end())
      return true;
    says_where= says_where || option.first == "page_placement" || option.second != "none";
  }
  /* What the server's variables say now is for a new file. */
  return !says_where;
}

/* The table that the statement makes another one of; nullptr: there is none, or it is another
   engine's. */
static const TABLE *original(THD *thd)
{
  const TABLE_LIST *tables= thd->lex->query_tables;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_CREATE_TABLE:
    tables= tables && thd->lex->create_info.like() ? tables->next_global : nullptr;
    break;
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    break;
  default:
    tables= nullptr;
  }
  const TABLE *table= tables ? tables->table : nullptr;
  return table && table->file && table->file->partition_ht() == inkstone_hton ? table : nullptr;
}

int page_options_for(THD *thd, const HA_CREATE_INFO *info, PageOptions *options)
{
  const TABLE *copied= original(thd);
  if (!copied || names_pages(thd, copied->s, info))
  {
    *options= options_in(info);
    return 0;
  }
  std::vector<std::string> names;
  TableName name(copied->s->normalized_path.str);
  if (copied->part_info)
    if (int failed= partitions_of(thd, name.text(), &names))
      return failed;
  names.push_back(name.text());
  ink_error error;
  OwnedTable opened;
  if (open_table(slice_of(names[0]), &opened, &error))
    return handler_error(thd, error);
  *options= page_options_of(opened.get());
  return 0;
}
