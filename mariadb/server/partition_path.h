/* SPDX-License-Identifier: GPL-2.0-only */
/* Names of partitions. */
#ifndef INKSTONE_PARTITION_PATH_H
#define INKSTONE_PARTITION_PATH_H

#include <string>

/** What stands in a partition's name between those of its table and of itself. */
static const char PARTITION_MARK[]= "#P#";

/** A partition's path, "./db/t#P#p0", in two: the table's path, and what follows it. */
struct PartitionPath
{
  explicit PartitionPath(const std::string &path) : table(path)
  {
    const size_t name= path.rfind('/');
    const size_t at= path.find(PARTITION_MARK, name == std::string::npos ? 0 : name);
    if (at == std::string::npos)
      return;
    table= path.substr(0, at);
    partition= path.substr(at);
  }
  bool is_partition() const { return !partition.empty(); }
  std::string table, partition;
};

#endif
