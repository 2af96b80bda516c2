"""The subcommands of run_engine.py, one per file, each with HELP, add_arguments and run."""
