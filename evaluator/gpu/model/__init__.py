# SPDX-License-Identifier: GPL-3.0-or-later
"""A static performance model of absent GPUs: times of launches from machine code and published figures."""
