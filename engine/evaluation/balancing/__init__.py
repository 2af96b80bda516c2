# SPDX-License-Identifier: GPL-3.0-or-later
"""One pipeline over several evaluators: work goes where it is answered soonest."""
