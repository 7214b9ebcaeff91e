"""Exercises of the bank as quizzes for a learning management system (LMS), such as Moodle or Canvas.

The module `quiz_questions` makes questions from exercises, and `known_answers` finds the numbers to which
known mistakes lead. The modules `moodle_xml`, `canvas_qti` and `qti_21` write one format each.
"""
