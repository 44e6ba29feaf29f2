#!/bin/bash
# hetrain_files.h as test subject.
exec bash "$(dirname "$0")/check_plan_header.sh" files
