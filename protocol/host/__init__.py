# SPDX-License-Identifier: GPL-3.0-or-later
"""What both processes need of the machine they run on, and no message."""
