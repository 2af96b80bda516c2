# SPDX-License-Identifier: GPL-3.0-or-later
"""The format of training games, and the names of it that others use."""

from engine.apps.shards.chunk import MAX_RECORDS, TrainingDataError
from engine.apps.shards.move_codes import move_code, uci_move
from engine.apps.shards.shard import (
    SIX_DIGITS,
    SUFFIX,
    UNKNOWN_PLIES,
    Shard,
    ShardError,
    read_header,
    read_shard,
    shard_bytes,
    write_shard,
)
from engine.apps.shards.shard_coding import (
    NAT_STEPS,
    NO_SHARE,
    Columns,
    moves_of_samples,
    share_bytes,
    wdl_bytes,
    wdl_of,
)
from engine.apps.shards.shard_games import columns_of, shard_of
from engine.apps.shards.training_record import (
    CLASSICAL,
    RECORD_DTYPE,
    black_to_move,
    is_canonical,
    reverse_ranks,
    transform_of,
)
