"""Where the time of one call goes, stage by stage."""
