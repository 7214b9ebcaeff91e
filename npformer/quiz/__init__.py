"""Exercises of the bank as quizzes for an LMS: Moodle and Canvas.

The module `quiz_questions` makes questions from exercises, and `known_answers` finds the numbers that known
mistakes lead to. The modules `moodle_xml` and `canvas_qti` write one format each.
"""
