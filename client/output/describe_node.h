// Everything about one node as text for people: its slots, its GPUs, what is wrong with them. Pure.
#pragma once

#include <string>

#include "client/output/tables.h"

namespace mt::client {

std::string DescribeNode(const v1::Node& node, const TableArgs& args);

}  // namespace mt::client
