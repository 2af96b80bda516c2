"""Analysis for programs: queries as JSON in, answers as JSON out, many searches at once."""
