# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers of settings: tables of configuration files, and options with their own syntax. And identity.py."""
