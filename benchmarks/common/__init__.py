# SPDX-License-Identifier: GPL-3.0-or-later
"""What several packages use: figures and their tables, installations, processes, devices that sleep."""
