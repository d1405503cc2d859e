/* SPDX-License-Identifier: GPL-2.0-only */
/* What the optimizer asks: how many rows, how many in a range, how much a read costs. The answers
   are made as InnoDB's are, so that the same plans are chosen. */
#include "server/change_times.h"
#include "handler/ha_inkstone.h"
#include <algorithm>

/* The shortest row of a table as InnoDB stores it, which makes its estimate of a table's most
   rows. */
static size_t shortest_row_bytes(const TABLE *table)
{
  const size_t header= 5, transaction= 6, undo= 7, row_id= 6;
  size_t bytes= header + transaction + undo, nullable= 0;
  if (table->s->primary_key >= MAX_KEY)
    bytes+= row_id;
  for (Field **place= table->field; *place; place++)
  {
    const Field *field= *place;
    if (!field->stored_in_db())
      continue;
    nullable+= field->real_maybe_null();
    /* A CHAR of a character set whose characters have different lengths is stored as a VARCHAR. */
    const CHARSET_INFO *charset= field->charset();
    bool varies= field->type() == MYSQL_TYPE_VARCHAR || (field->flags & BLOB_FLAG) ||
                 (field->real_type() == MYSQL_TYPE_STRING && charset->mbminlen != charset->mbmaxlen);
    bytes+= !varies ? field->pack_length() : field->field_length < 128 ? 1 : 2;
  }
  return bytes + (nullable + 7) / 8;
}

/* When the table was made: as of InnoDB's, when its definition's file was. 0: it has none. */
static time_t created(const TABLE *table)
{
  char path[FN_REFLEN];
  MY_STAT found;
  my_snprintf(path, sizeof path, "%s/%s%s", mysql_data_home, table->s->normalized_path.str, reg_ext);
  unpack_filename(path, path);
  return my_stat(path, &found, MYF(0)) ? found.st_ctime : 0;
}

int ha_inkstone::info(uint flag)
{
  if (flag & HA_STATUS_TIME)
    stats.update_time= change_times::of(access.share->name);
  if (flag & HA_STATUS_CONST)
    stats.create_time= created(table);
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
  {
    ink_table_estimates found;
    if (int failed= access.share->statistics(ha_thd(), &found))
      return failed;
    /* Its file, which holds nothing, is not the one that it waits for. */
    if (access.share->is_discarded())
      found.rows= found.clustered_pages= found.long_value_bytes= found.secondary_pages= found.free_bytes= 0;
    stats.records= found.rows;
    /* The optimizer takes 0 and 1 for exact. */
    if (!stats.records && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN)))
      stats.records= 1;
    stats.deleted= 0;
    clustered_pages= found.clustered_pages;
    stats.data_file_length= found.clustered_pages * found.page_bytes + found.long_value_bytes;
    stats.index_file_length= found.secondary_pages * found.page_bytes;
    stats.delete_length= found.free_bytes;
    stats.mean_rec_length= static_cast<ulong>(
        found.rows ? stats.data_file_length / found.rows : 0);
    stats.block_size= static_cast<uint>(found.page_bytes);
    rows_upper_bound= 2 * found.clustered_pages * found.page_bytes / shortest_row_bytes(table);
    stats.mrr_length_per_rec= ref_length + sizeof(void *);
    if ((flag & HA_STATUS_CONST) && !is_outdated())
      if (int failed= access.share->rows_per_value(ha_thd(), table, codec.indexes))
        return failed;
  }
  /* The server may ask a partition that the statement has not locked. */
  if (flag & HA_STATUS_ERRKEY)
    if (const Session *asking= session_of(ha_thd()))
      errkey= asking->duplicate_index;
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
    stats.auto_increment_value= counter().next();
  return 0;
}

ha_rows ha_inkstone::estimate_rows_upper_bound()
{
  /* Estimates may be low; sorts must have room. */
  ha_rows rows= stats.records * 2 + 20;
  return std::max(rows, rows_upper_bound);
}

ha_rows ha_inkstone::records_in_range(uint index, const key_range *min, const key_range *max,
                                      page_range *pages)
{
  Search search;
  Buffer tree_high;
  ink_error error;
  ink_range_estimates found;
  ink_range in_tree;
  bool no_memory;
  if (!search.between(codec.indexes[index], min, max, &no_memory))
    return no_memory ? HA_POS_ERROR : 1;
  if (access.share->key_room().tree_range(search.range, tree_high, &in_tree))
    return HA_POS_ERROR;
  if (ink_records_in_range(tree_of(index), &in_tree, &found, &error))
  {
    handler_error(thd(), error);
    return HA_POS_ERROR;
  }
  /* Ranges with a leaf in common are read at once, and cost the less for it. */
  pages->first_page= found.first_page;
  pages->last_page= found.last_page;
  /* An estimate of none is not to be taken for a fact. */
  return found.rows ? found.rows : 1;
}

double ha_inkstone::scan_time()
{
  return static_cast<double>(clustered_pages);
}

double ha_inkstone::read_time(uint index, uint ranges, ha_rows rows)
{
  if (!codec.is_clustered(index))
    return handler::read_time(index, ranges, rows);
  double whole= scan_time();
  double total= static_cast<double>(rows_upper_bound);
  return total < rows ? whole : ranges + rows / total * whole;
}
